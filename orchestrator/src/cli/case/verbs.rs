//! Arguments of the verbs.

use contracts::id::OperationId;
use contracts::intake::{Finding, OperatorVerb};

use crate::cli::records::SagaKey;
use crate::cli::saga::{Speech, Wait};
use crate::cli::{CliError, argument};

pub(super) const ASSIGN_HELP: &str = "\
Examples:
  orchestrator case assign deposit/acme/p1 --owner ann --reason 'has the provider on the phone'

Exit codes: 0 done; 1 refused; 2 there is no such case; 3 no acknowledgement, say it again; 64 usage.";

pub(super) const RECHECK_HELP: &str = "\
Examples:
  orchestrator case recheck deposit/acme/p1 --reason 'agent of eu is back'

Each is asked under its own operation id: whoever executed it repeats the answer. Where the saga has turned back
that is its compensation; what is to be undone is not done again.
Exit codes: 0 asked (and what came of it is printed); 1 refused; 2 there is no such saga; 3 no acknowledgement, say
it again; 64 usage.";

pub(super) const RESOLVE_HELP: &str = "\
Examples:
  orchestrator case resolve deposit/acme/p1 --applied --evidence 'statement of 3 May, page 2' --reason 'offset by hand'
  orchestrator case resolve deposit/acme/p1 --not-applied --operation deposit/acme/p1 --evidence 'not in the \
ledger' --reason 'wallet restored' --dry-run
  orchestrator case resolve case/intake/7-0/5f4dcc3b5aa7 --reason 'sent again by the provider'

Your word on one operation, kept with its evidence; the saga goes on from there. A step that was not applied turns the
saga back; where its participant keeps tombstones its undo is sent all the same, as an attempt may still be on its way.
Without a finding it closes a case that is a message and no saga. What is certain already is not resolved.
Exit codes: 0 done, or waits for a second person; 1 refused; 2 there is no such case; 3 no acknowledgement, say it
again; 64 usage.";

pub(super) const COMPENSATE_HELP: &str = "\
Examples:
  orchestrator case compensate deposit/acme/p1 --reason 'provider took the money back' --dry-run
  orchestrator case compensate deposit/acme/p1 --reason 'provider took the money back'

Every effect is offset, the newest first, the pivot's too. The saga never goes forward again.
Exit codes: 0 it turns back, or waits for a second person; 1 refused; 2 there is no such saga; 3 no acknowledgement,
say it again; 64 usage.";

pub(in crate::cli) const RETRY_HELP: &str = "\
Examples:
  orchestrator case retry-now deposit/acme/p1 --reason 'customer was funded'

What waits to be sent again is sent now, refused compensations and refused steps are tried again, and a
workflow that asked a person is run again: new code may now agree.
Exit codes: 0 tried (and what came of it is printed); 1 refused; 2 there is no such saga; 3 no acknowledgement, say
it again; 64 usage.";

pub(in crate::cli) const SAGA_RETRY_HELP: &str = "\
Examples:
  orchestrator saga retry deposit/acme/p1 --reason 'the database is back'

The same as `orchestrator case retry-now`.
Exit codes: 0 tried (and what came of it is printed); 1 refused; 2 there is no such saga; 3 no acknowledgement, say
it again; 64 usage.";

pub(in crate::cli) const HOLD_HELP: &str = "\
Examples:
  orchestrator case hold deposit/acme/p1 --reason 'fraud desk is looking'

Answers and signals are still taken in. `release` lets it go on.
Exit codes: 0 held; 1 refused; 2 there is no such saga; 3 no acknowledgement, say it again; 64 usage.";

pub(in crate::cli) const SAGA_HOLD_HELP: &str = "\
Examples:
  orchestrator saga hold deposit/acme/p1 --reason 'fraud desk is looking'

Answers and signals are still taken in. `release` lets it go on.
Exit codes: 0 held; 1 refused; 2 there is no such saga; 3 no acknowledgement, say it again; 64 usage.";

pub(in crate::cli) const RELEASE_HELP: &str = "\
Examples:
  orchestrator case release deposit/acme/p1 --reason 'fraud desk agrees'

Exit codes: 0 it goes on; 1 refused; 2 there is no such saga; 3 no acknowledgement, say it again; 64 usage.";

pub(in crate::cli) const SAGA_RELEASE_HELP: &str = "\
Examples:
  orchestrator saga release deposit/acme/p1 --reason 'fraud desk agrees'

Exit codes: 0 it goes on; 1 refused; 2 there is no such saga; 3 no acknowledgement, say it again; 64 usage.";

pub(super) const APPROVE_HELP: &str = "\
Examples:
  orchestrator case approve deposit/acme/p1 --request b8d1 --reason 'checked the statement' --by bob

`orchestrator case show ID` names the request that waits. Whoever made it cannot agree to it.
Exit codes: 0 agreed, and it is carried out; 1 refused; 2 there is no such saga; 3 no acknowledgement, say it again;
64 usage.";

/// What every verb takes.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Asked {
    /// The saga's or case's id, or its key in the bucket
    #[arg(value_name = "ID")]
    pub(in crate::cli) saga: SagaKey,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) reason: String,
    /// Who asks, for the record
    #[arg(
        long,
        value_name = "NAME",
        env = "USER",
        default_value = "operator",
        hide_env = true
    )]
    pub(in crate::cli) by: String,
    /// Your own id of the request; the same id again changes nothing [default: a new one]
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) id: Option<String>,
    /// Say what would be sent and which money would move, and do nothing
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    #[command(flatten)]
    pub(in crate::cli) wait: Wait,
}

/// A verb that takes nothing else.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Plain {
    #[command(flatten)]
    asked: Asked,
}

/// Flags of `case assign`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Assign {
    /// To whom
    #[arg(long, value_name = "NAME")]
    owner: String,
    #[command(flatten)]
    asked: Asked,
}

/// Flags of `case resolve`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Resolve {
    /// The operation stands
    #[arg(long, conflicts_with = "not_applied", requires = "evidence")]
    applied: bool,
    /// The operation has had no effect and never will
    #[arg(long, requires = "evidence")]
    not_applied: bool,
    /// How you know
    #[arg(long, value_name = "TEXT")]
    evidence: Option<String>,
    /// Which operation [default: the only one that is open]
    #[arg(long, value_name = "ID")]
    operation: Option<OperationId>,
    /// What the participant would have answered, where the workflow reads it: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", requires = "applied")]
    reply: Option<String>,
    #[command(flatten)]
    asked: Asked,
}

/// Flags of `case approve`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Approve {
    /// The id of the request that waits
    #[arg(long, value_name = "ID")]
    request: String,
    #[command(flatten)]
    asked: Asked,
}

impl Plain {
    pub(in crate::cli) fn speech(self, verb: OperatorVerb) -> Result<Speech, CliError> {
        self.asked.speech(verb)
    }
}

impl Assign {
    pub(super) fn speech(self) -> Result<Speech, CliError> {
        self.asked
            .speech(OperatorVerb::Assign { owner: self.owner })
    }
}

impl Approve {
    pub(super) fn speech(self) -> Result<Speech, CliError> {
        let request = self.request;
        self.asked.speech(OperatorVerb::Approve { request })
    }
}

impl Resolve {
    pub(super) fn speech(self) -> Result<Speech, CliError> {
        let finding = match (self.applied, self.not_applied) {
            (true, _) => Some(Finding::Applied),
            (false, true) => Some(Finding::NotApplied),
            (false, false) => None,
        };
        let reply = match &self.reply {
            Some(text) => Some(argument::json("--reply", text)?),
            None => None,
        };
        self.asked.speech(OperatorVerb::Resolve {
            operation_id: self.operation,
            finding,
            evidence: self.evidence.unwrap_or_default(),
            reply,
        })
    }
}

impl Asked {
    fn speech(self, verb: OperatorVerb) -> Result<Speech, CliError> {
        Speech::operator(self, verb)
    }
}
