//! Replicas of the orchestrator: the real engine and the real handlers, in a process that can die, stand
//! still and come back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use orchestrator::callback::{Providers, ProvidersConfig};
use orchestrator::clock::Clock;
use orchestrator::consume::{self, Incoming};
use orchestrator::driver::{Engine, Limits};
use orchestrator::intake::Intake;
use orchestrator::metrics::Metrics;
use orchestrator::timers::Timers;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::consumer::{ACK_WAIT, Delivery, Kind};
use super::network::Network;
use super::stream::Log;
use super::workflows;
use super::world::World;

/// How a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    Frozen,
    Dead,
}

/// A process: everything that leaves or reaches it passes here.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) clock: Clock,
    state: Arc<State>,
}

/// Whether a process lives. Those who wait for it go on in the order in which they came: the same in each
/// run of a seed.
#[derive(Debug)]
struct State {
    life: Mutex<Life>,
    changed: Notify,
}

impl State {
    fn get(&self) -> Life {
        *self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it from one to the other, if it is the one.
    fn turn(&self, from: Life, to: Life) -> bool {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = *life == from;
        if turns {
            *life = to;
        }
        drop(life);
        self.changed.notify_waiters();
        turns
    }
}

impl Process {
    /// A point where the process may die or stand still; goes on when it is alive. Never, once dead.
    pub(super) async fn pass(&self, world: &Arc<World>, point: &str) {
        if world.chance.strikes("crash", point) {
            let down = world.chance.between("down", point, 100, 20_000);
            world.tell("", &format!("FAULT crash of {} at {point}", self.name));
            world.replicas.crash(world, &self.name, down);
        } else if world.chance.strikes("freeze", point) {
            // Half of them for less than a command lives.
            let still = match world.chance.draw("short", point).is_multiple_of(2) {
                true => world.chance.between("still", point, 500, 6_000),
                false => world.chance.between("still", point, 6_000, 45_000),
            };
            world.tell("", &format!("FAULT freeze of {} at {point}", self.name));
            self.freeze(world, still);
        }
        self.alive().await;
    }

    /// Waits while it stands still; for ever when it is dead.
    pub(super) async fn alive(&self) {
        if !self.is_heard().await {
            std::future::pending::<()>().await;
        }
    }

    /// Waits while it stands still, then says whether it lives.
    pub(super) async fn is_heard(&self) -> bool {
        loop {
            let changed = self.state.changed.notified();
            match self.state.get() {
                Life::Running => return true,
                Life::Dead => return false,
                Life::Frozen => changed.await,
            }
        }
    }

    fn freeze(&self, world: &Arc<World>, still: Duration) {
        if !self.state.turn(Life::Running, Life::Frozen) {
            return;
        }
        let (state, world, name) = (self.state.clone(), world.clone(), self.name.clone());
        tokio::spawn(async move {
            tokio::time::sleep(still).await;
            if state.turn(Life::Frozen, Life::Running) {
                world.tell("", &format!("{name} goes on after {still:?}"));
            }
        });
    }

    fn die(&self) {
        for life in [Life::Running, Life::Frozen] {
            self.state.turn(life, Life::Dead);
        }
    }
}

/// A running replica.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) process: Arc<Process>,
    pub(super) engine: Engine,
    intake: Intake,
    timers: Timers,
    stop: CancellationToken,
}

impl Replica {
    /// Works on a delivered message as the real consumers do.
    pub(super) async fn take(&self, kind: Kind, incoming: &Incoming, delivery: &Delivery) {
        self.process.alive().await;
        match kind {
            Kind::Intake => {
                consume::settle(&self.intake, incoming, delivery, ACK_WAIT, &self.stop).await;
            }
            Kind::Timers => {
                consume::settle(&self.timers, incoming, delivery, ACK_WAIT, &self.stop).await;
            }
        }
    }
}

/// All replicas, by their place; a dead one's place is empty until it is started again.
#[derive(Debug, Default)]
pub(super) struct Replicas(Mutex<Vec<Option<Arc<Replica>>>>);

impl Replicas {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Arc<Replica>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those whom a message may be given.
    pub(super) fn listening(&self) -> Vec<Arc<Replica>> {
        let replicas = self.lock();
        let listening = replicas.iter().flatten();
        listening
            .filter(|replica| !replica.stop.is_cancelled())
            .cloned()
            .collect()
    }

    pub(super) fn start(&self, world: &Arc<World>, index: usize) {
        let run = world.ordinal(&format!("run/{index}"));
        let name = format!("r{index}-{run}");
        let skew = match world.chance.strikes("skew", &name) {
            true => world.skew(&name),
            false => SignedDuration::ZERO,
        };
        let run = run.to_string();
        let clock = Clock::told(&format!("r{index}"), &run, world.clock(skew));
        let process = Arc::new(Process {
            index,
            name: name.clone(),
            clock: clock.clone(),
            state: Arc::new(State {
                life: Mutex::new(Life::Running),
                changed: Notify::new(),
            }),
        });
        let log = Log {
            world: world.clone(),
            process: process.clone(),
        };
        let network = Network::new(world.clone(), process.clone());
        let metrics = Metrics::new().unwrap_or_else(|error| panic!("metrics: {error}"));
        let engine = Engine::new(
            Arc::new(log),
            workflows::all(),
            Arc::new(network.clone()),
            clock,
            world.rules(),
            Limits::default().within(world.max_ack_pending()),
            metrics,
        );
        network.answers_late_to(engine.clone());
        let providers = Providers::new(ProvidersConfig::default())
            .unwrap_or_else(|error| panic!("providers: {error}"));
        let replica = Replica {
            process,
            intake: Intake::new(engine.clone(), providers),
            timers: Timers::new(engine.clone()),
            engine,
            stop: CancellationToken::new(),
        };
        let mut replicas = self.lock();
        while replicas.len() <= index {
            replicas.push(None);
        }
        replicas[index] = Some(Arc::new(replica));
        drop(replicas);
        world.tell("", &format!("{name} starts, its clock {skew:#} off"));
        world.intake.look_again();
        world.timers.look_again();
    }

    /// Kills the process of this name, if it lives, and starts another in its place after a while.
    pub(super) fn crash(&self, world: &Arc<World>, name: &str, down: Duration) {
        let mut replicas = self.lock();
        let Some(place) = replicas.iter_mut().find(|replica| {
            replica
                .as_ref()
                .is_some_and(|replica| replica.process.name == name)
        }) else {
            return;
        };
        let Some(replica) = place.take() else { return };
        drop(replicas);
        replica.process.die();
        world.tell("", &format!("{name} dies"));
        let (world, index) = (world.clone(), replica.process.index);
        tokio::spawn(async move {
            tokio::time::sleep(down).await;
            world.replicas.start(&world, index);
        });
    }

    fn at(&self, index: usize) -> Option<Arc<Replica>> {
        self.lock().get(index).cloned().flatten()
    }

    pub(super) fn crash_at(&self, world: &Arc<World>, index: usize, down: Duration) {
        if let Some(replica) = self.at(index) {
            self.crash(world, &replica.process.name, down);
        }
    }

    pub(super) fn freeze_at(&self, world: &Arc<World>, index: usize, still: Duration) {
        if let Some(replica) = self.at(index) {
            world.tell("", &format!("{} stands still", replica.process.name));
            replica.process.freeze(world, still);
        }
    }

    /// Stops a replica as its process does: no new messages, some time for what is at work, the rest given
    /// back; then it is gone.
    pub(super) fn stop_at(&self, world: &Arc<World>, index: usize, down: Duration) {
        let Some(replica) = self.at(index) else {
            return;
        };
        world.tell("", &format!("{} stops", replica.process.name));
        replica.stop.cancel();
        let world = world.clone();
        tokio::spawn(async move {
            let grace = Duration::from_secs(2);
            let stopping = replica.engine.shut_down(grace);
            // One that stands still or waits for its server is killed.
            if tokio::time::timeout(grace * 5, stopping).await.is_err() {
                world.tell("", &format!("{} is killed", replica.process.name));
            }
            // The last acknowledgements leave.
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.replicas.crash(&world, &replica.process.name, down);
        });
    }

    /// Lets go of everything, so that the world can be dropped.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}
