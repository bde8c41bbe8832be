//! A replica's way to the participants: the core's own side and the local wallet in process, other regions
//! over a network that loses, delays, repeats and reorders.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use contracts::command::{CommandHeader, WalletCommand, WalletGet};
use contracts::id::SagaId;
use contracts::reply::{Effect, WalletReply};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use orchestrator::driver::Engine;
use orchestrator::participants::{Asked, Perform, answer, asked, header, status};
use orchestrator::saga::action::Command;
use orchestrator::saga::input::{Answer, Reply};
use orchestrator::saga::record::Participant;
use tokio::sync::oneshot;

use super::replica::Process;
use super::script::REGIONS;
use super::world::World;
use crate::judge::Observation;

#[derive(Debug, Clone)]
pub(super) struct Network(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    world: Arc<World>,
    process: Arc<Process>,
    engine: OnceLock<Engine>,
}

/// A request that is out, as its sender remembers it until the first answer.
#[derive(Debug, Clone)]
struct Out {
    saga: SagaId,
    command: Command,
    point: String,
    waiter: Arc<Mutex<Option<oneshot::Sender<Answer>>>>,
}

/// How long after a command's deadline the real bus still matches an answer to it.
const LATE_FOR: SignedDuration = SignedDuration::from_mins(10);

impl Network {
    pub(super) fn new(world: Arc<World>, process: Arc<Process>) -> Self {
        Self(Arc::new(Inner {
            world,
            process,
            engine: OnceLock::new(),
        }))
    }

    /// Late answers go there.
    pub(super) fn answers_late_to(&self, engine: Engine) {
        drop(self.0.engine.set(engine));
    }
}

impl Perform for Network {
    fn perform<'a>(
        &'a self,
        saga_id: &'a SagaId,
        command: &'a Command,
    ) -> BoxFuture<'a, Option<Answer>> {
        Box::pin(self.0.perform(saga_id, command))
    }
}

impl Inner {
    async fn perform(self: &Arc<Self>, saga: &SagaId, command: &Command) -> Option<Answer> {
        let (world, operation) = (&self.world, &command.operation_id);
        let number = world.ordinal(&format!("send/{operation}"));
        let point = format!("{operation}#{number}");
        self.process.pass(world, &format!("send/{point}")).await;
        let participant = match &command.participant {
            Participant::Core => "core".to_owned(),
            Participant::Region(region) => region.to_string(),
        };
        world.tell(
            saga.as_str(),
            &format!(
                "{} sends {} {operation} to {participant}, attempt {} fence {}",
                self.process.name, command.kind, command.attempt, command.fence
            ),
        );
        world.saw(vec![Observation::CommandLeft {
            saga: saga.to_string(),
            operation: operation.to_string(),
            participant: participant.clone(),
            kind: command.kind.clone(),
            request: command.request.clone(),
            fence: command.fence,
        }]);
        let answer = match &command.participant {
            Participant::Core => Some(self.core(saga, command, &point).await),
            Participant::Region(region) if region.as_str() == REGIONS[0] => {
                Some(self.local(saga, command, &point).await)
            }
            Participant::Region(_) => self.remote(saga, command, &participant, &point).await,
        };
        self.process.pass(world, &format!("heard/{point}")).await;
        world.tell(
            saga.as_str(),
            &format!(
                "{} hears of {point}: {}",
                self.process.name,
                shown(answer.as_ref())
            ),
        );
        answer
    }

    fn strikes(&self, kind: &'static str, saga: &SagaId, point: &str) -> bool {
        let strikes = self.world.chance.strikes(kind, point);
        if strikes {
            let text = format!("FAULT {kind} at {point}");
            self.world.tell(saga.as_str(), &text);
        }
        strikes
    }

    /// How long the command's deadline is away, by our clock.
    fn until_deadline(&self, command: &Command) -> Duration {
        let left = command.deadline.duration_since(self.process.clock.now());
        Duration::try_from(left).unwrap_or(Duration::ZERO)
    }

    async fn core(&self, saga: &SagaId, command: &Command, point: &str) -> Answer {
        let chance = &self.world.chance;
        if command.kind == "fx.quote" && self.strikes("no-rate", saga, point) {
            tokio::time::sleep(chance.between("core", point, 1, 500)).await;
            let (code, retry_after) = ("no rate now".to_owned(), SignedDuration::ZERO);
            return Answer::NotExecuted { code, retry_after };
        }
        let error = |message: &str| Answer::Unknown {
            message: message.to_owned(),
        };
        if self.strikes("core-error", saga, point) {
            tokio::time::sleep(chance.between("core", point, 1, 5_000)).await;
            return error("the database went away");
        }
        let fails_after = self.strikes("core-error-after", saga, point);
        let wait = match self.strikes("core-slow", saga, point) {
            true => chance.between("core-slow", point, 1_000, 25_000),
            false => chance.between("core", point, 0, 4),
        };
        let limit = self.until_deadline(command);
        if wait >= limit {
            // Given up on, it is still carried out.
            let (world, process) = (self.world.clone(), self.process.clone());
            let (saga, command) = (saga.clone(), command.clone());
            world.in_flight(1);
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                if process.is_heard().await {
                    execute_core(&world, &process, &saga, &command);
                }
                world.in_flight(-1);
            });
            tokio::time::sleep(limit).await;
            return error("it took too long");
        }
        tokio::time::sleep(wait).await;
        self.process.alive().await;
        let answer = execute_core(&self.world, &self.process, saga, command);
        if fails_after {
            return error("the connection broke");
        }
        answer
    }

    async fn local(&self, saga: &SagaId, command: &Command, point: &str) -> Answer {
        let request = match asked(command) {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        let header = header(saga, command);
        let chance = &self.world.chance;
        let wait = match self.strikes("request-slow", saga, point) {
            true => chance.between("slow", point, 500, 12_000),
            false => chance.between("local", point, 0, 4),
        };
        tokio::time::sleep(wait).await;
        self.process.alive().await;
        let now = self.process.clock.now();
        let answer = self.world.ask(REGIONS[0], header, &request, command, now);
        if self.strikes("agent-unavailable", saga, point) {
            let message = "the connection broke".to_owned();
            return Answer::Unknown { message };
        }
        answer
    }

    async fn remote(
        self: &Arc<Self>,
        saga: &SagaId,
        command: &Command,
        region: &str,
        point: &str,
    ) -> Option<Answer> {
        let not_executed = |code: &str| {
            Some(Answer::NotExecuted {
                code: code.to_owned(),
                retry_after: SignedDuration::ZERO,
            })
        };
        let chance = &self.world.chance;
        if self.strikes("disconnected", saga, point) {
            return Some(Answer::HeldBack {
                code: "disconnected".to_owned(),
                retry_after: SignedDuration::ZERO,
            });
        }
        let request = match asked(command) {
            Ok(request) => request,
            Err(refusal) => return Some(refusal),
        };
        let down = self.world.is_down(region);
        // A region that took the first sending may be gone when the next one comes.
        let gone = !point.ends_with("#1")
            && self.strikes("nobody-from-then-on", saga, command.operation_id.as_str());
        if down == Some(false) || gone || self.strikes("no-responders", saga, point) {
            tokio::time::sleep(chance.between("core", point, 1, 50)).await;
            return not_executed("no_responders");
        }
        let (sender, reply) = oneshot::channel();
        let out = Out {
            saga: saga.clone(),
            command: command.clone(),
            point: point.to_owned(),
            waiter: Arc::new(Mutex::new(Some(sender))),
        };
        let copies = if self.strikes("request-twice", saga, point) {
            2
        } else {
            1
        };
        for copy in 0..copies {
            if copy == 0 && self.strikes("request-lost", saga, point) {
                continue;
            }
            let travel = format!("{point}/{copy}");
            let wait = if self.strikes("request-slow", saga, &travel) {
                chance.between("slow", &travel, 300, 9_500)
            } else if self.strikes("request-late", saga, &travel) {
                chance.between("slow", &travel, 9_000, 180_000)
            } else {
                chance.between("travel", &travel, 1, 120)
            };
            let (this, out, request) = (self.clone(), out.clone(), request.clone());
            self.world.in_flight(1);
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                this.arrive(out, request, &travel).await;
                this.world.in_flight(-1);
            });
        }
        // When every copy is lost the sender is gone; it is waited for all the same.
        let wait = self.until_deadline(command);
        tokio::time::timeout(wait, async {
            match reply.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        })
        .await
        .ok()
    }

    /// A request reaches one of the region's agents.
    async fn arrive(&self, out: Out, request: Asked, travel: &str) {
        let world = &self.world;
        let Participant::Region(region) = &out.command.participant else {
            return;
        };
        if world.is_down(region.as_str()).is_some() {
            return;
        }
        let strikes = |kind| self.strikes(kind, &out.saga, travel);
        let agent = format!("agent-{region}-{}", world.chance.draw("agent", travel) % 2);
        let skew = match world.chance.strikes("skew", &agent) {
            true => world.skew(&agent),
            false => SignedDuration::ZERO,
        };
        let header = header(&out.saga, &out.command);
        let reply = if strikes("agent-busy") {
            let retry_after_ms = 50;
            answer(WalletReply::Busy { retry_after_ms }, &out.command)
        } else if strikes("agent-crash-before") {
            return;
        } else {
            let unavailable = strikes("agent-unavailable");
            let message = "the database went away".to_owned();
            let cannot_tell = Answer::Unknown { message };
            if unavailable && world.chance.draw("before", travel).is_multiple_of(2) {
                cannot_tell
            } else {
                let now = world.now_off(skew);
                let reply = world.ask(region.as_str(), header, &request, &out.command, now);
                if strikes("agent-crash-after") {
                    return;
                }
                match unavailable {
                    true => cannot_tell,
                    false => reply,
                }
            }
        };
        if strikes("reply-lost") {
            return;
        }
        let times = if strikes("reply-twice") { 2 } else { 1 };
        for time in 0..times {
            let back = format!("{travel}/{time}");
            let wait = if self.strikes("reply-late", &out.saga, &back) {
                world.chance.between("back", &back, 2_000, 30_000)
            } else if self.strikes("reply-very-late", &out.saga, &back) {
                world.chance.between("back", &back, 30_000, 540_000)
            } else {
                world.chance.between("back", &back, 1, 120)
            };
            tokio::time::sleep(wait).await;
            self.hear(&out, reply.clone()).await;
        }
    }

    /// An answer reaches the process that asked, if it is still there.
    async fn hear(&self, out: &Out, answer: Answer) {
        if !self.process.is_heard().await {
            return;
        }
        // A second answer to one command finds nothing any more.
        let waiter = out
            .waiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(waiter) = waiter else { return };
        let Err(answer) = waiter.send(answer) else {
            return;
        };
        let forget_at = orchestrator::saga::policy::after(out.command.deadline, LATE_FOR);
        if self.process.clock.now() > forget_at {
            return;
        }
        let text = format!("late answer to {}: {}", out.point, shown(Some(&answer)));
        self.world.tell(out.saga.as_str(), &text);
        if let Some(engine) = self.engine.get() {
            let reply = Reply {
                operation_id: out.command.operation_id.clone(),
                attempt: out.command.attempt,
                answer,
            };
            engine.late_reply(&out.saga, reply);
        }
    }
}

/// The real side waits in real time, so it gets a deadline that it does not meet; ours is kept by us.
fn execute_core(world: &World, process: &Process, saga: &SagaId, command: &Command) -> Answer {
    let now = process.clock.now();
    let deadline = orchestrator::saga::policy::after(now, SignedDuration::from_mins(5));
    let command = Command {
        deadline,
        ..command.clone()
    };
    world
        .databases
        .core(saga.clone(), command, now, world.rates())
}

fn shown(answer: Option<&Answer>) -> String {
    match answer {
        None => "nothing".to_owned(),
        Some(Answer::Applied(_)) => "applied".to_owned(),
        Some(other) => format!("{other:?}"),
    }
}

impl World {
    /// A wallet is asked for something, and what its answer means to the one who asked.
    fn ask(
        &self,
        region: &str,
        header: CommandHeader,
        request: &Asked,
        command: &Command,
        now: Timestamp,
    ) -> Answer {
        match request {
            Asked::To(request) => {
                answer(self.wallet(region, header, request.clone(), now), command)
            }
            Asked::About(get) => self.look(region, get, now),
        }
    }

    fn look(&self, region: &str, get: &WalletGet, now: Timestamp) -> Answer {
        status(self.databases.look(region, get.clone(), now), get)
    }

    /// A wallet takes up a command; what it says of it afterwards is seen.
    pub(super) fn wallet(
        &self,
        region: &str,
        header: CommandHeader,
        command: WalletCommand,
        now: Timestamp,
    ) -> WalletReply {
        let (saga, operation) = (header.saga_id.clone(), header.operation_id.clone());
        let saga = saga.map(|saga| saga.to_string()).unwrap_or_default();
        let arrived = Observation::CommandArrived {
            wallet: region.to_owned(),
            saga: saga.clone(),
            operation: operation.to_string(),
            fence: header.fence,
            deadline_passed: header.deadline <= now,
        };
        self.executed(region, &header, &command);
        let is_revert = matches!(command, WalletCommand::Revert(_));
        let (reply, seen) = self.databases.wallet(region, header, command, now);
        match &reply {
            WalletReply::Applied { effect, .. } => {
                self.settled(operation.clone());
                if let Effect::Offset { target, .. } | Effect::Tombstoned { target } = effect {
                    self.settled(target.clone());
                }
            }
            WalletReply::Rejected { .. } if !is_revert => self.settled(operation.clone()),
            WalletReply::Rejected { .. }
            | WalletReply::Cancelled { .. }
            | WalletReply::Conflict { .. }
            | WalletReply::Stale { .. }
            | WalletReply::Expired { .. }
            | WalletReply::Busy { .. }
            | WalletReply::Invalid { .. }
            | WalletReply::Unavailable { .. }
            | WalletReply::Unknown => {}
        }
        self.tell(&saga, &format!("{region} answers {operation}: {reply:?}"));
        self.saw(std::iter::once(arrived).chain(seen).collect());
        reply
    }
}
