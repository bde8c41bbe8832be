//! The system of a run, and what is done to it.

use super::plan::{AGENTS, CORE, Fault, LEAVES, ORCHESTRATORS, Plan, Planned, Where};
use super::proxy::{Line, Proxy};
use super::report::Report;
use crate::postgres::Postgres;
use crate::system::{Databases, System};
use anyhow::{Context as _, Result, ensure};
use orchestrator::saga::CASE_WORKFLOW;
use orchestrator::site::{Server, SiteError, User};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;
use tokio::time::Instant;

/// How often processes that ended by themselves are looked for.
const SUPERVISED_EVERY: Duration = Duration::from_millis(500);

/// Longest time a process may take to end when asked: its grace, what it allows itself for a server that is
/// away, and as much again for a busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(25);

/// Longest wait until all processes work again after the last fault.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// How often a fault is tried that meets nothing.
const TRIES: u32 = 20;

/// Something to do at an instant.
#[derive(Debug, Clone, Copy)]
struct Move<'a> {
    at: Instant,
    what: What,
    fault: &'a Planned,
}

/// Which end of a fault.
#[derive(Debug, Clone, Copy)]
enum What {
    Begin { tries: u32 },
    TakeBack,
}

/// A running system with lines to be cut.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) system: System,
    /// By the process that dials.
    lines: BTreeMap<&'static str, Proxy>,
    /// Down because we said so.
    down: BTreeSet<&'static str>,
    /// Asked to end, since when; started again when they have.
    asked: BTreeMap<&'static str, Instant>,
    _postgres: Option<Postgres>,
}

impl Stage {
    /// Everything started and ready, on one PostgreSQL where there is one.
    pub(super) async fn start() -> Result<Self> {
        let postgres = Postgres::start_or_say_so("chaos");
        let databases = match &postgres {
            Some(server) => Some(Databases::postgres(server).await?),
            None => None,
        };
        let mut system = System::start_on(databases).await?;
        let mut lines = BTreeMap::new();
        for (name, leaf) in LEAVES {
            let variable = format!("LEAF_{}_REMOTE", leaf.region().to_uppercase());
            let remote = system
                .site
                .variable(&variable)
                .context("a remote")?
                .to_owned();
            let (login, target) = remote.rsplit_once('@').context("a login")?;
            let proxy = Proxy::start(target.parse()?).await?;
            let file = system.site.dir().join(format!("nats/leaf-{leaf}.conf"));
            let text = std::fs::read_to_string(&file)?;
            let url = format!("url: ${variable}");
            ensure!(text.contains(&url), "{} has no {url}", file.display());
            // The core tells its own address as well, which goes round the proxy.
            let through = format!(
                "url: \"{login}@{}\"\n      ignore_discovered_servers: true",
                proxy.address
            );
            std::fs::write(&file, text.replace(&url, &through))?;
            system.site.restart_server(Server::Leaf(leaf)).await?;
            lines.insert(name, proxy);
        }
        for name in ORCHESTRATORS {
            let url = system.site.login(User::Orchestrator).url;
            let target = url.strip_prefix("nats://").context("an address")?.parse()?;
            let proxy = Proxy::start(target).await?;
            let through = format!("nats://{}", proxy.address);
            system.spawn_orchestrator(name, &[("NATS_URL", &through), ("CONNECTIONS", "8")])?;
            lines.insert(name, proxy);
        }
        for (name, leaf) in AGENTS {
            system.spawn_agent(name, leaf, &[])?;
        }
        for name in ORCHESTRATORS
            .into_iter()
            .chain(AGENTS.map(|(name, _)| name))
        {
            system.ready(name).await?;
        }
        for (name, line) in &lines {
            ensure!(
                line.set(Line::Whole) > 0,
                "{name} does not go through its proxy"
            );
        }
        Ok(Self {
            system,
            lines,
            down: BTreeSet::new(),
            asked: BTreeMap::new(),
            _postgres: postgres,
        })
    }

    /// Does what is planned and takes it back again, and starts what ended by itself, as a supervisor does.
    pub(super) async fn play(&mut self, plan: &Plan, report: &mut Report) -> Result<()> {
        let began = Instant::now();
        let mut moves: Vec<Move<'_>> = plan
            .faults
            .iter()
            .map(|fault| Move {
                at: began + fault.begins,
                what: What::Begin { tries: 0 },
                fault,
            })
            .collect();
        loop {
            // Last first, so that the next one is popped; what was planned first comes first.
            moves.sort_by_key(|step| std::cmp::Reverse(step.at));
            let Some(step) = moves.pop() else {
                return Ok(());
            };
            while Instant::now() < step.at {
                tokio::time::sleep_until(step.at.min(Instant::now() + SUPERVISED_EVERY)).await;
                self.supervise(report)?;
            }
            let (at, fault) = (began.elapsed().as_secs_f32(), step.fault);
            match step.what {
                What::TakeBack => {
                    self.take_back(fault)?;
                    if fault.kind.fault != Fault::Restart {
                        eprintln!("{at:>7.1}s  {} is over", describe(fault));
                    }
                }
                What::Begin { tries } if self.begin(fault).await? => {
                    let late = if tries > 0 { " (late)" } else { "" };
                    eprintln!("{at:>7.1}s  {}, {:.1?}{late}", describe(fault), fault.lasts);
                    report.happened(fault.kind);
                    let (at, what) = (Instant::now() + fault.lasts, What::TakeBack);
                    moves.push(Move { at, what, fault });
                }
                // There is nothing to cut while the other end is away.
                What::Begin { tries } if tries < TRIES => {
                    let what = What::Begin { tries: tries + 1 };
                    let at = Instant::now() + SUPERVISED_EVERY;
                    moves.push(Move { at, what, fault });
                }
                What::Begin { .. } => {
                    eprintln!("{at:>7.1}s  {} met nothing", describe(fault));
                    self.take_back(fault)?;
                    report.missed(fault.kind);
                }
            }
        }
    }

    /// Waits until every process works and nothing is under way.
    pub(super) async fn settle(&mut self, until: Instant, report: &mut Report) -> Result<()> {
        while !self.asked.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.supervise(report)?;
        }
        let deadline = Instant::now() + READY_WITHIN;
        for name in ORCHESTRATORS
            .into_iter()
            .chain(AGENTS.map(|(name, _)| name))
        {
            loop {
                self.supervise(report)?;
                let page = crate::http::get(self.system.health_of(name), "/readyz").await;
                if page.is_ok_and(|page| page.status == 200) {
                    break;
                }
                let log = self.system.site.log_tail(name);
                ensure!(
                    Instant::now() < deadline,
                    "{name} is not ready again within {READY_WITHIN:?}\n{log}"
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        self.system.site.links_ready().await?;
        eprintln!("chaos: all processes are ready");
        self.system
            .until_at_rest(until.saturating_duration_since(Instant::now()))
            .await
    }

    /// What stands in the cases that are no saga's.
    pub(super) async fn cases(&self) -> Result<Vec<String>> {
        let records = self.system.records().await?.into_iter();
        let cases = records.filter(|record| record.workflow == CASE_WORKFLOW);
        Ok(cases.map(|record| record.cause).collect())
    }

    /// Whether the fault met something that ran.
    async fn begin(&mut self, fault: &Planned) -> Result<bool> {
        let name = fault.target;
        if let Some(line) = line_of(fault) {
            let proxy = self.lines.get(name).context("a line")?;
            return Ok(proxy.set(line) > 0);
        }
        if self.asked.contains_key(name) || !self.system.site.is_running(name)? {
            return Ok(false);
        }
        match fault.kind.fault {
            Fault::Kill => {
                self.system.site.kill(name)?;
                self.down.insert(name);
            }
            Fault::Restart => {
                // Only asked here; it is started again by the supervisor when it has ended.
                match self.system.site.terminate(name, Duration::ZERO).await {
                    Ok(()) | Err(SiteError::TimedOut { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                self.asked.insert(name, Instant::now());
            }
            Fault::Freeze => self.system.site.freeze(name)?,
            Fault::Cut | Fault::OneWay | Fault::Slow | Fault::BlackHole => {}
        }
        Ok(true)
    }

    fn take_back(&mut self, fault: &Planned) -> Result<()> {
        let name = fault.target;
        match fault.kind.fault {
            Fault::Kill if self.down.remove(name) => self.system.restart(name),
            Fault::Kill | Fault::Restart => Ok(()),
            Fault::Freeze if self.system.site.is_running(name)? => {
                Ok(self.system.site.thaw(name)?)
            }
            Fault::Freeze => Ok(()),
            Fault::Cut | Fault::OneWay | Fault::Slow | Fault::BlackHole => {
                self.lines.get(name).context("a line")?.set(Line::Whole);
                Ok(())
            }
        }
    }

    /// A process may give up and end, as when it finds no server at its start; one that crashes is a defect.
    fn supervise(&mut self, report: &mut Report) -> Result<()> {
        let names = ORCHESTRATORS
            .into_iter()
            .chain(AGENTS.map(|(name, _)| name));
        for name in names.chain(LEAVES.map(|(name, _)| name)).chain([CORE]) {
            if self.down.contains(name) {
                continue;
            }
            let status = self.system.site.exit_status(name)?;
            if let Some(since) = self.asked.get(name).copied() {
                if status.is_none() && since.elapsed() < ENDS_WITHIN {
                    continue;
                }
                self.asked.remove(name);
                match status {
                    Some(status) => eprintln!("          {name} has ended: {status}"),
                    None => {
                        let log = self.system.site.log_tail(name);
                        report
                            .stuck
                            .push(format!("{name} did not end within {ENDS_WITHIN:?}\n{log}"));
                    }
                }
                self.system.restart(name)?;
                continue;
            }
            let Some(status) = status else {
                continue;
            };
            let log = self.system.site.log_tail(name);
            eprintln!("          {name} ended by itself: {status}");
            if status.signal().is_some() || status.code() == Some(PANIC) {
                report.crashes.push(format!("{name}: {status}\n{log}"));
            }
            *report
                .ended
                .entry(format!("{name} ended by itself, {status}"))
                .or_default() += 1;
            self.system.restart(name)?;
        }
        Ok(())
    }
}

/// What a Rust program exits with after a panic.
const PANIC: i32 = 101;

fn line_of(fault: &Planned) -> Option<Line> {
    match (fault.kind.at, fault.kind.fault) {
        (Where::Orchestrator | Where::Agent | Where::LeafNode | Where::Core, _)
        | (_, Fault::Kill | Fault::Restart | Fault::Freeze) => None,
        (_, Fault::Cut) => Some(Line::Cut),
        (_, Fault::OneWay) if fault.draw.is_multiple_of(2) => Some(Line::OnlyUp),
        (_, Fault::OneWay) => Some(Line::OnlyDown),
        (_, Fault::Slow) => Some(Line::Slow(Duration::from_millis(50 + fault.draw % 350))),
        (_, Fault::BlackHole) => Some(Line::Swallowing),
    }
}

fn describe(fault: &Planned) -> String {
    match line_of(fault) {
        None => format!("{} {}", fault.kind.fault, fault.target),
        Some(line) => format!("{} {} - core ({line:?})", fault.kind.fault, fault.target),
    }
}
