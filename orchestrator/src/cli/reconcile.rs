//! `orchestrator reconcile`.

use std::collections::BTreeSet;
use std::io;

use contracts::id::Region;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::moment::instant;
use super::output::{self, Format, OutputFlag, clean};
use super::{CliError, Exit, connect};
use crate::clock::wall_clock;
use crate::config::{BooksFlags, Config};
use crate::payments::Payments;
use crate::reconcile::{self, Difference, Options, Progress, ReconcileError, Report, Sums};
use crate::regions::Regions;

pub(super) const HELP: &str = "\
Examples:
  orchestrator reconcile --payments postgres://reader@db/payments
  orchestrator reconcile --since 2026-12-01T00:00:00Z --until 2026-12-02T00:00:00Z --region eu
  orchestrator reconcile --since 2h --stuck 5m -o json | jq -r 'select(.kind).fix.command'
  orchestrator reconcile --without-payments

Compares every saga that lived in the range: its record, its payment, its wallet operations (through the
region's agents) and its events. Only reads; give it the operator's user, and a payments user that may only
read. May run while sagas do: what differs is read again before it is named, and a saga on its way is no
difference unless it has made no progress for longer than --stuck. One that waits until a known instant is
given until then as well.
Not compared: balances and entries with operations (region-agent ledger verify, in each region), and what
providers say. What a person books under OPERATION/correction:N counts as part of that operation.
Payments and regions come from the config file, as for serve (payments, default_region, regions).
With -o json: one object a line for each difference, and {\"summary\": …} as the last line.
Exit codes: 0 everything agrees; 1 there are differences; 3 a side cannot be reached, nothing is known;
64 usage.";

/// Flags of `reconcile`.
#[derive(Debug, clap::Args)]
pub(super) struct Reconcile {
    #[command(flatten)]
    pub(super) books: BooksFlags,
    /// From when on: an instant such as 2026-12-01T00:00:00Z, or how long ago
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = moment)]
    since: Moment,
    /// Until when, likewise [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Moment>,
    /// Only this region; give it once for each
    #[arg(long = "region", value_name = "NAME")]
    regions: Vec<Region>,
    /// How long an open saga may be without progress
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = humantime::parse_duration)]
    stuck: std::time::Duration,
    /// Do not compare payments; the summary says so
    #[arg(long)]
    without_payments: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    output: OutputFlag,
}

/// An instant, or a length of time before now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    At(Timestamp),
    Ago(std::time::Duration),
}

fn moment(text: &str) -> Result<Moment, String> {
    if let Ok(at) = text.parse() {
        return Ok(Moment::At(at));
    }
    humantime::parse_duration(text)
        .map(Moment::Ago)
        .map_err(|_| {
            "an instant such as 2026-12-01T00:00:00Z, or how long ago, such as 24h".to_owned()
        })
}

impl Moment {
    fn of(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => SignedDuration::try_from(ago)
                .ok()
                .and_then(|ago| now.checked_sub(ago).ok())
                .unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }
}

pub(super) async fn run(command: &Reconcile, config: &Config) -> Result<Exit, CliError> {
    let now = wall_clock();
    let books = config.books().map_err(CliError::Config)?;
    let options = Options {
        since: command.since.of(now),
        until: command.until.map_or(now, |until| until.of(now)),
        regions: books.regions.clone(),
        only: (!command.regions.is_empty()).then(|| command.regions.iter().cloned().collect()),
        stuck: SignedDuration::try_from(command.stuck).unwrap_or(SignedDuration::MAX),
        partition: config.partition.clone(),
        now,
    };
    if options.since >= options.until {
        let (since, until) = (instant(options.since), instant(options.until));
        return Err(CliError::Argument(format!(
            "--since {since} is not before --until {until}"
        )));
    }
    let payments = match (&books.payments_url, command.without_payments) {
        (_, true) => None,
        (Some(url), false) => {
            let regions = Regions::new(books.regions, books.default_region);
            let opened = Payments::open_to_read(url, regions).await;
            Some(opened.map_err(|error| failed(error.into()))?)
        }
        (None, false) => {
            return Err(CliError::Argument(
                "no payments database is given: name it by --payments or in the config file, or say \
                 --without-payments"
                    .to_owned(),
            ));
        }
    };
    let client = connect(config, "orchestrator reconcile").await?;
    let mut printer = Printer::new(command);
    let mut watch = |progress| printer.hear(progress);
    let compared = reconcile::reconcile(&client, payments.as_ref(), &options, &mut watch).await;
    printer.bar.finish_and_clear();
    if let Some(payments) = payments {
        payments.close().await;
    }
    let report = compared.map_err(failed)?;
    if let Some(error) = printer.trouble {
        return Err(error.into());
    }
    match printer.format {
        Format::Json => output::write_json_line(&Summary { summary: &report })?,
        Format::Table => output::write(&summary(&report))?,
    }
    Ok(if report.count() == 0 {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn failed(error: ReconcileError) -> CliError {
    CliError::Reconcile(Box::new(error))
}

#[derive(Serialize)]
struct Summary<'a> {
    summary: &'a Report,
}

/// Prints differences as they are found, and progress beside them.
struct Printer {
    bar: ProgressBar,
    format: Format,
    trouble: Option<io::Error>,
}

impl Printer {
    fn new(command: &Reconcile) -> Self {
        let target = if command.quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target).with_finish(ProgressFinish::AndClear);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            format: command.output.output,
            trouble: None,
        }
    }

    fn hear(&mut self, progress: Progress) {
        match progress {
            Progress::Found(difference) => {
                let format = self.format;
                let printed = self.bar.suspend(|| match format {
                    Format::Json => output::write_json_line(&difference),
                    Format::Table => output::write(&text(&difference)),
                });
                if let Err(error) = printed {
                    self.trouble.get_or_insert(error);
                }
            }
            Progress::Read { facts, left, open } => {
                self.bar.set_message(format!(
                    "{facts} facts read, {left} messages to come, {open} sagas not yet heard from all sides"
                ));
                self.bar.tick();
            }
            Progress::Settling { left } => {
                self.bar
                    .set_message(format!("{left} sagas to be read again"));
                self.bar.tick();
            }
        }
    }
}

/// A difference for a person: what, whose, how much; what each side says; what to do.
fn text(difference: &Difference) -> String {
    let mut head = vec![difference.kind.to_string(), difference.saga_id.clone()];
    head.extend(difference.amount.map(|amount| amount.to_string()));
    head.extend(difference.region.as_ref().map(ToString::to_string));
    let mut text = format!("{}\n", clean(&head.join("  ")));
    let says = &difference.says;
    let mut line =
        |name: &str, said: &str| text.push_str(&format!("    {name:8} {}\n", clean(said)));
    for (name, said) in [
        ("record", &says.record),
        ("wallet", &says.wallet),
        ("payment", &says.payment),
        ("event", &says.event),
    ] {
        if let Some(said) = said {
            line(name, said);
        }
    }
    line("fix", &difference.fix.command);
    line("", &difference.fix.note);
    text
}

fn summary(report: &Report) -> String {
    let counts = &report.compared;
    let regions: BTreeSet<String> = report.regions.iter().map(ToString::to_string).collect();
    let regions: Vec<String> = regions.into_iter().collect();
    let mut text = format!(
        "From {} to {}, regions {}: {} sagas, {} wallet operations, {} events, {}\n",
        instant(report.since),
        instant(report.until),
        regions.join(", "),
        counts.sagas,
        counts.operations,
        counts.events,
        if report.payments_compared {
            format!("{} payments", counts.payments)
        } else {
            "payments NOT compared".to_owned()
        },
    );
    if !report.sums.is_empty() {
        let rows = report
            .sums
            .iter()
            .map(|(name, sums)| row(name, sums))
            .collect();
        let head = [
            "CURRENCY", "CREDITS", "DEBITS", "REVERTS", "PAYMENTS", "EVENTS",
        ];
        text.push_str(&output::table(head, rows));
    }
    if report.under_way > 0 {
        text.push_str(&format!("{} sagas are under way\n", report.under_way));
    }
    match report.count() {
        0 => text.push_str("everything agrees\n"),
        count => {
            let kinds: Vec<String> = report
                .differences
                .iter()
                .map(|(kind, count)| format!("{count} {kind}"))
                .collect();
            text.push_str(&format!("{count} differences: {}\n", kinds.join(", ")));
        }
    }
    text
}

fn row(name: &str, sums: &Sums) -> [String; 6] {
    let (code, exponent) = name.split_once('.').unwrap_or((name, ""));
    let exponent: usize = exponent.parse().unwrap_or(0);
    let text = |minor: i128| decimal(minor, exponent);
    [
        code.to_owned(),
        text(sums.credits),
        text(sums.debits),
        text(sums.reverts),
        text(sums.payments),
        text(sums.events),
    ]
}

/// Minor units as decimal text, exactly.
fn decimal(minor: i128, exponent: usize) -> String {
    let digits = format!("{:0>width$}", minor.unsigned_abs(), width = exponent + 1);
    let (whole, part) = digits.split_at(digits.len() - exponent);
    let sign = if minor < 0 { "-" } else { "" };
    if part.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{part}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_instant_or_a_length_of_time_before_now() {
        let now: Timestamp = "2026-12-02T00:00:00Z".parse().expect("time");
        for (text, expected) in [
            ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("24h", "2026-12-01T00:00:00Z"),
            ("1h 30m", "2026-12-01T22:30:00Z"),
        ] {
            let at = moment(text).expect(text).of(now);
            assert_eq!(at, expected.parse().expect("time"), "{text}");
        }
        for text in ["", "yesterday", "-1h", "24"] {
            assert!(moment(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sums_are_shown_exactly() {
        for (minor, exponent, text) in [
            (0, 2, "0.00"),
            (5, 2, "0.05"),
            (-5, 3, "-0.005"),
            (123_456, 2, "1234.56"),
            (7, 0, "7"),
            (i128::from(i64::MAX) * 10, 2, "922337203685477580.70"),
        ] {
            assert_eq!(decimal(minor, exponent), text);
        }
    }
}
