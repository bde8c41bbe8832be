//! What people did to a saga by hand, as its record keeps it: bounded, since a record must fit into one
//! message. The audit stream keeps all of it.

use contracts::audit::OperatorAnswer;
use contracts::intake::{OperatorRequest, OperatorVerb};
use contracts::subject::short_digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What people did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ByHand {
    /// Since when and by whom the saga's clocks are stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Until when the time in which the clocks stood still has been given back: what is waited for has moved
    /// by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_back_until: Option<Timestamp>,
    /// A request that waits for a second person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal: Option<Proposal>,
    /// The last [`MAX_ACTIONS`] requests, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<OperatorAction>,
    /// Marks of older requests, so that a repeat of one is still told: the last [`MAX_EARLIER`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
}

/// A saga whose clocks are stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Since when.
    pub since: Timestamp,
    /// By whom.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// A request that waits for a second person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// The request.
    pub request: OperatorRequest,
    /// When it was made.
    pub at: Timestamp,
}

/// One request of an operator and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperatorAction {
    /// The request's id.
    pub id: String,
    /// Its digest: the same id with another content is another request, and refused.
    pub digest: String,
    /// What was asked for; long texts are cut.
    #[serde(flatten)]
    pub verb: OperatorVerb,
    /// By whom.
    pub by: String,
    /// Why; a long text is cut.
    pub reason: String,
    /// When it was decided.
    pub at: Timestamp,
    /// What became of it.
    #[serde(flatten)]
    pub answer: OperatorAnswer,
}

/// Requests kept in a record.
pub const MAX_ACTIONS: usize = 24;

/// Marks of older requests kept in a record.
pub const MAX_EARLIER: usize = 512;

/// Bytes of a text kept in a record.
const MAX_TEXT: usize = 1024;

/// What is known of a request's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing.
    New,
    /// This very request came before.
    Repeated,
    /// The id stands for another request.
    Taken,
}

impl ByHand {
    /// Whether nobody has done anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What became of a request, while the record still says so.
    #[must_use]
    pub fn action(&self, request: &OperatorRequest) -> Option<&OperatorAction> {
        let digest = request.digest();
        self.actions
            .iter()
            .find(|action| action.id == request.id && action.digest == digest)
    }

    pub(super) fn known(&self, request: &OperatorRequest) -> Known {
        let digest = request.digest();
        let (id, content) = (id_mark(&request.id), content_mark(&digest));
        let mut known = Known::New;
        let kept = self.actions.iter().map(mark);
        for mark in kept.chain(self.earlier.iter().cloned()) {
            if mark == format!("{id}:{content}") {
                return Known::Repeated;
            }
            if mark.split(':').next() == Some(&id) {
                known = Known::Taken;
            }
        }
        known
    }

    pub(super) fn note(
        &mut self,
        request: &OperatorRequest,
        answer: OperatorAnswer,
        at: Timestamp,
    ) {
        if self.actions.len() == MAX_ACTIONS {
            let oldest = self.actions.remove(0);
            if self.earlier.len() == MAX_EARLIER {
                self.earlier.remove(0);
            }
            self.earlier.push(mark(&oldest));
        }
        self.actions.push(OperatorAction {
            id: request.id.clone(),
            digest: request.digest(),
            verb: shortened(&request.verb),
            by: request.by.clone(),
            reason: cut(&request.reason),
            at,
            answer,
        });
    }

    /// Who was given the case last.
    pub(super) fn last_owner(&self) -> Option<String> {
        self.actions
            .iter()
            .rev()
            .filter(|action| action.answer == OperatorAnswer::Accepted)
            .find_map(|action| match &action.verb {
                OperatorVerb::Assign { owner } => Some(owner.clone()),
                OperatorVerb::Cancel
                | OperatorVerb::Recheck
                | OperatorVerb::Resolve { .. }
                | OperatorVerb::Compensate
                | OperatorVerb::RetryNow
                | OperatorVerb::Hold
                | OperatorVerb::Release
                | OperatorVerb::Approve { .. } => None,
            })
    }
}

impl Proposal {
    /// Whether this person made it. Blanks and capitals do not make a second person.
    #[must_use]
    pub fn is_by(&self, by: &str) -> bool {
        self.request.by.trim().to_lowercase() == by.trim().to_lowercase()
    }
}

fn mark(action: &OperatorAction) -> String {
    format!("{}:{}", id_mark(&action.id), content_mark(&action.digest))
}

fn id_mark(id: &str) -> String {
    short_digest(id.as_bytes())
        .get(..16)
        .unwrap_or_default()
        .to_owned()
}

fn content_mark(digest: &str) -> &str {
    digest.get(..16).unwrap_or(digest)
}

fn shortened(verb: &OperatorVerb) -> OperatorVerb {
    match verb {
        OperatorVerb::Resolve {
            operation_id,
            finding,
            evidence,
            reply: _,
        } => OperatorVerb::Resolve {
            operation_id: operation_id.clone(),
            finding: *finding,
            evidence: cut(evidence),
            reply: None,
        },
        OperatorVerb::Cancel
        | OperatorVerb::Assign { .. }
        | OperatorVerb::Recheck
        | OperatorVerb::Compensate
        | OperatorVerb::RetryNow
        | OperatorVerb::Hold
        | OperatorVerb::Release
        | OperatorVerb::Approve { .. } => verb.clone(),
    }
}

/// The beginning of a text, cut between characters.
pub(super) fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_TEXT).rev().find(|&end| text.is_char_boundary(end));
    format!("{}…", &text[..end.unwrap_or(0)])
}
