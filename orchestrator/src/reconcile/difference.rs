//! A difference between two sides, and what may be done about it.

use contracts::id::{OperationId, Region};
use contracts::money::Money;
use serde::Serialize;

use crate::saga::operator::Verb;

/// What two sides do not agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The wallet holds a movement of which no saga knows.
    WalletWithoutSaga,
    /// The record claims a movement that does not stand in the wallet, or the wallet has only its offset.
    WalletMissing,
    /// The wallet holds the movement, or its offset, with another customer, direction, sum or currency.
    WalletDiffers,
    /// The wallet holds a movement that the record says was never applied.
    WalletUnexpected,
    /// The saga turned back, and its movement still stands.
    RevertMissing,
    /// A second movement for the same payment, such as the same one in another region.
    ExtraMovement,
    /// A completed saga without its payment.
    PaymentMissing,
    /// A completed saga whose payment is not marked successful.
    PaymentNotSuccessful,
    /// The payment says another saga, customer, region or sum than the record.
    PaymentDiffers,
    /// A payment marked successful though its saga has not completed.
    PaymentWithoutCompletion,
    /// A payment still pending although its saga has ended.
    PaymentLeftOpen,
    /// A payment whose saga has no record, or a successful one that no saga has taken.
    PaymentWithoutSaga,
    /// A completed saga without its event.
    EventMissing,
    /// The event is in the state stream and not in the one that other teams read.
    EventNotCopied,
    /// A completed saga with its event more than once.
    EventRepeated,
    /// The event says another saga, customer, region or sum than the record.
    EventDiffers,
    /// An event of a saga that has not completed, or that there is not.
    EventWithoutCompletion,
    /// An event that nobody can read.
    EventUnreadable,
    /// A record that nobody can read.
    RecordUnreadable,
    /// A saga that has been open for too long without progress.
    Stuck,
    /// A saga that has waited for a person for too long.
    WaitsForPerson,
    /// An operation of unknown outcome that nothing settles.
    UnknownOutcome,
}

impl Kind {
    /// As printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WalletWithoutSaga => "wallet_without_saga",
            Self::WalletMissing => "wallet_missing",
            Self::WalletDiffers => "wallet_differs",
            Self::WalletUnexpected => "wallet_unexpected",
            Self::RevertMissing => "revert_missing",
            Self::ExtraMovement => "extra_movement",
            Self::PaymentMissing => "payment_missing",
            Self::PaymentNotSuccessful => "payment_not_successful",
            Self::PaymentDiffers => "payment_differs",
            Self::PaymentWithoutCompletion => "payment_without_completion",
            Self::PaymentLeftOpen => "payment_left_open",
            Self::PaymentWithoutSaga => "payment_without_saga",
            Self::EventMissing => "event_missing",
            Self::EventNotCopied => "event_not_copied",
            Self::EventRepeated => "event_repeated",
            Self::EventDiffers => "event_differs",
            Self::EventWithoutCompletion => "event_without_completion",
            Self::EventUnreadable => "event_unreadable",
            Self::RecordUnreadable => "record_unreadable",
            Self::Stuck => "stuck",
            Self::WaitsForPerson => "waits_for_person",
            Self::UnknownOutcome => "unknown_outcome",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which kind.
    pub kind: Kind,
    /// The saga, or the operation that stands for one nobody knows.
    pub saga_id: String,
    /// Its key in the bucket of records.
    pub saga_key: String,
    /// Our id of the payment, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment_id: Option<String>,
    /// The wallet operation it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    /// The region it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
    /// The money it is about; absent where none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// What each side says.
    pub says: Says,
    /// What may be done about it.
    pub fix: Fix,
}

impl Difference {
    /// The same of an event that is missing only where other teams read.
    pub(super) fn not_copied(self) -> Self {
        let event = "it was written, and the stream for other teams lacks it".to_owned();
        let subject = Subject {
            saga: &self.saga_id,
            key: &self.saga_key,
            operation: None,
            region: self.region.as_ref(),
            verbs: &[],
            open: false,
            book: None,
        };
        Self {
            kind: Kind::EventNotCopied,
            fix: Fix::of(Kind::EventNotCopied, &subject),
            says: Says {
                event: Some(event),
                ..self.says
            },
            ..self
        }
    }
}

/// What each side says, in words; absent where it was not asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Says {
    /// The saga's record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The wallet of the region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wallet: Option<String>,
    /// The payments database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payment: Option<String>,
    /// The log of events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

/// A legal way to finish what differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// A command line of ours; words in capitals are for the person to fill in.
    pub command: String,
    /// What to know before it is run.
    pub note: String,
}

impl Fix {
    /// The way out of a difference. `saga` is its id or key, `open` tells whether it can still take a word.
    pub(super) fn of(kind: Kind, subject: &Subject<'_>) -> Self {
        let saga = shell(subject.saga);
        let region = subject.region.map_or("its region", Region::as_str);
        let operation = shell(subject.operation.map_or(subject.saga, OperationId::as_str));
        let show = || format!("orchestrator saga show {saga} --history");
        let may = |verb| subject.verbs.contains(&verb);
        let (command, note) = match kind {
            // What follows is for a person beside a ledger.
            Kind::WalletMissing
            | Kind::WalletDiffers
            | Kind::RevertMissing
            | Kind::WalletUnexpected
                if subject.book.is_some() =>
            {
                booking(subject.book, region)
            }
            Kind::WalletMissing => (
                show(),
                "what was refused or offset cannot be booked under its id, and the saga may yet turn back: \
                 once it has ended, the next run names what to book"
                    .to_owned(),
            ),
            Kind::WalletWithoutSaga | Kind::ExtraMovement | Kind::WalletUnexpected => (
                format!("region-agent wallet revert {operation} --reason TEXT"),
                format!("beside the ledger of {region}, once it is clear that nothing was paid for it"),
            ),
            Kind::RevertMissing => (
                format!("region-agent wallet revert {operation} --reason TEXT"),
                format!("beside the ledger of {region}: the saga's own compensation, under its own key"),
            ),
            Kind::WalletDiffers => (
                format!("region-agent wallet revert {operation} --reason TEXT"),
                format!(
                    "beside the ledger of {region}, after `region-agent ledger verify`; the next run then \
                     names what to book in its place"
                ),
            ),
            Kind::PaymentLeftOpen => (
                show(),
                "the saga has ended and marks nothing any more. A command of it that was still on its way \
                 may have set the row afterwards, or somebody else has: see in the history and in the audit \
                 of the payments database which, then set the row to what the record says"
                    .to_owned(),
            ),
            Kind::PaymentMissing
            | Kind::PaymentNotSuccessful
            | Kind::PaymentDiffers
            | Kind::PaymentWithoutCompletion => (
                show(),
                "the saga has not written what the row says: see in the history and in the audit of the \
                 payments database who has, then set the row to what the record says"
                    .to_owned(),
            ),
            Kind::PaymentWithoutSaga | Kind::EventWithoutCompletion | Kind::EventUnreadable => (
                show(),
                "no saga of ours says so: find out who wrote it, and tell those who consumed it".to_owned(),
            ),
            Kind::EventMissing => (
                show(),
                "it was in the write that completed the saga, so it has been removed: tell the consumers \
                 what the record says"
                    .to_owned(),
            ),
            Kind::EventNotCopied => (
                "orchestrator setup".to_owned(),
                "compares the stream that other teams read with what is declared; if its source is right, \
                 messages were removed from it"
                    .to_owned(),
            ),
            Kind::EventRepeated => (
                show(),
                "consumers tell events apart by saga id and must have taken it once; find out who \
                 published the other"
                    .to_owned(),
            ),
            Kind::EventDiffers => (
                show(),
                "the record says what was done; find out who published the event".to_owned(),
            ),
            Kind::RecordUnreadable => (
                format!("nats kv get saga {} --raw", shell(subject.key)),
                "`orchestrator saga show` names what cannot be decoded; `nats kv history` has the revision \
                 before"
                    .to_owned(),
            ),
            Kind::Stuck if may(Verb::RetryNow) => (
                format!("orchestrator saga retry {saga} --reason TEXT"),
                "sends now what waits to be sent again; `orchestrator doctor` says whether anything drives it"
                    .to_owned(),
            ),
            Kind::Stuck | Kind::UnknownOutcome if may(Verb::Recheck) => (
                format!("orchestrator case recheck {saga} --reason TEXT"),
                "asks the participant; `case resolve --applied|--not-applied --evidence TEXT` where it \
                 cannot say"
                    .to_owned(),
            ),
            Kind::Stuck => (
                format!("orchestrator saga show {saga}"),
                "says what it waits for, and nothing waits to be sent again; `orchestrator doctor` says \
                 whether anything drives it"
                    .to_owned(),
            ),
            Kind::WaitsForPerson => (
                format!("orchestrator case show {saga}"),
                "says what happened and which verbs are legal now".to_owned(),
            ),
            Kind::UnknownOutcome if may(Verb::Resolve) => (
                format!("orchestrator case show {saga}"),
                "it cannot be asked again; once you know, `case resolve --applied|--not-applied --evidence \
                 TEXT`"
                    .to_owned(),
            ),
            Kind::UnknownOutcome if subject.open => (
                format!("orchestrator case show {saga}"),
                "says which verbs are legal now; its answer may still come".to_owned(),
            ),
            Kind::UnknownOutcome => (
                show(),
                "the saga has ended and asks no more: what the wallet and the payment hold is compared with \
                 the record, and named where it differs; here only the participant can say what came of it"
                    .to_owned(),
            ),
        };
        Self { command, note }
    }
}

/// The command line that books, and what to know before.
fn booking(book: Option<&Book>, region: &str) -> (String, String) {
    let Some(book) = book else {
        return Default::default();
    };
    let note = if book.corrects {
        format!(
            "beside the ledger of {region}, after `region-agent ledger verify`: the wallet answers for the \
             movement's own id already and would book nothing, so this corrects it under another, which \
             counts as the movement's"
        )
    } else {
        format!(
            "beside the ledger of {region}, after `region-agent ledger verify`: the same operation under its \
             own id, so that it cannot happen twice; a ledger that has lost a row may have lost more, so see \
             its backups first"
        )
    };
    let command = format!(
        "region-agent wallet book {} {} --reason TEXT",
        shell(book.operation.as_str()),
        book.arguments
    );
    (command, note)
}

/// A movement to book beside a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Book {
    /// Under which id.
    pub(super) operation: OperationId,
    /// Arguments of `region-agent wallet book` after it.
    pub(super) arguments: String,
    /// Whether it corrects a movement, rather than being it.
    pub(super) corrects: bool,
}

/// What a fix has to know of a difference.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) saga: &'a str,
    pub(super) key: &'a str,
    pub(super) operation: Option<&'a OperationId>,
    pub(super) region: Option<&'a Region>,
    /// Whether the saga has not ended.
    pub(super) open: bool,
    /// What a person may do about the saga now.
    pub(super) verbs: &'a [Verb],
    /// What to book.
    pub(super) book: Option<&'a Book>,
}

/// A word of a command line that a shell leaves as it is.
pub(super) fn shell(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:@%+=,-".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
