//! What each verb does, once it is legal.

use contracts::id::OperationId;
use contracts::intake::{Finding, OperatorRequest, OperatorVerb};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::questions::{self, open_operations};
use crate::saga::action::{Command, Commit, Decision, Persist};
use crate::saga::by_hand::{Held, cut};
use crate::saga::ending::finish;
use crate::saga::flow::is_until;
use crate::saga::operation::{self, Side};
use crate::saga::policy::after;
use crate::saga::record::{
    CaseReason, Direction, Outcome, Participant, SagaRecord, Status, StepRecord, TurnReason,
};
use crate::saga::{
    CASE_WORKFLOW, Turn, Workflow, advance, compensation, early, store, take_ownership,
};

/// Carries a legal request out on a record.
///
/// # Errors
/// Why it cannot be carried out after all.
pub(super) fn perform(
    workflow: Option<&Workflow>,
    mut record: SagaRecord,
    request: &OperatorRequest,
    turn: Turn<'_>,
) -> Result<Box<Commit>, String> {
    if let OperatorVerb::Assign { owner } = &request.verb {
        if let Some(case) = &mut record.case {
            case.owner = Some(owner.clone());
        }
        return committed(store(record, Vec::new()));
    }
    record.cause = format!("{} by {}", request.verb.name(), request.by);
    if record.workflow == CASE_WORKFLOW {
        return close(record, request, turn);
    }
    let Some(workflow) = workflow else {
        return Err("the saga's workflow is not part of this build".to_owned());
    };
    match &request.verb {
        OperatorVerb::Cancel => cancel(workflow, record, request, turn),
        OperatorVerb::Recheck => recheck(workflow, record, turn),
        OperatorVerb::Compensate => {
            let (reason, message) = (TurnReason::CancelRequested, asked(request));
            compensation::turn_back(&mut record, reason, message, turn);
            go_on(workflow, record, Vec::new(), turn)
        }
        OperatorVerb::RetryNow => retry_now(workflow, record, turn),
        OperatorVerb::Hold => {
            record.by_hand.held = Some(Held {
                since: turn.now,
                by: request.by.clone(),
                reason: cut(&request.reason),
            });
            committed(store(record, Vec::new()))
        }
        OperatorVerb::Release => release(workflow, record, turn),
        OperatorVerb::Resolve {
            operation_id,
            finding,
            evidence,
            reply,
        } => {
            let Some(finding) = finding else {
                return Err("say what was found: applied, or not applied".to_owned());
            };
            let testimony = Testimony {
                operation_id: operation_id.as_ref(),
                finding: *finding,
                evidence,
                reply: reply.as_ref(),
                by: &request.by,
            };
            resolve(workflow, record, &testimony, turn)
        }
        OperatorVerb::Assign { .. } | OperatorVerb::Approve { .. } => {
            Err("nothing is left of this request to carry out".to_owned())
        }
    }
}

fn go_on(
    workflow: &Workflow,
    record: SagaRecord,
    commands: Vec<Command>,
    turn: Turn<'_>,
) -> Result<Box<Commit>, String> {
    committed(advance(workflow, record, turn, commands, Persist::Now))
}

fn committed(decision: Decision) -> Result<Box<Commit>, String> {
    match decision {
        Decision::Commit(commit) => Ok(commit),
        Decision::Ignore(_, ignored) => Err(format!("nothing came of it: {ignored:?}")),
    }
}

/// Turns back; what has turned back already tries again what was refused.
fn cancel(
    workflow: &Workflow,
    mut record: SagaRecord,
    request: &OperatorRequest,
    turn: Turn<'_>,
) -> Result<Box<Commit>, String> {
    let message = asked(request);
    if !record.is_started() {
        return committed(early::cancel(record, message, turn));
    }
    if record.direction == Direction::Forward {
        compensation::turn_back(&mut record, TurnReason::CancelRequested, message, turn);
    } else {
        compensation::try_refused_again(&mut record);
    }
    record.case = None;
    go_on(workflow, record, Vec::new(), turn)
}

/// Why a saga turns back at a person's request.
fn asked(request: &OperatorRequest) -> String {
    format!("{} (by {})", cut(&request.reason), request.by)
}

/// Sends once more what has no certain outcome. The case goes with it: the same answer opens it again.
fn recheck(
    workflow: &Workflow,
    mut record: SagaRecord,
    turn: Turn<'_>,
) -> Result<Box<Commit>, String> {
    let open = questions::askable(&record, turn.now);
    leave_review(&mut record, turn);
    let mut commands = Vec::new();
    for (index, side) in open {
        commands.extend(operation::ask_again(&mut record, index, side, turn));
    }
    go_on(workflow, record, commands, turn)
}

fn retry_now(
    workflow: &Workflow,
    mut record: SagaRecord,
    turn: Turn<'_>,
) -> Result<Box<Commit>, String> {
    let in_review = record.status == Status::NeedsReview;
    let mut commands = operation::send_now(&mut record, turn);
    if record.direction == Direction::Forward {
        leave_review(&mut record, turn);
        // A step that was refused is asked for again, as long as nothing has followed from the refusal. It
        // had no effect, so asking again can have no more than the one that is wanted.
        if in_review
            && let Some(index) = record.steps.len().checked_sub(1)
            && matches!(
                record.steps[index].forward.outcome,
                Outcome::NotApplied { .. }
            )
        {
            record.steps[index].forward.outcome = Outcome::Planned;
            commands.extend(operation::send_forward(&mut record, index, turn));
        }
    } else {
        compensation::try_refused_again(&mut record);
        leave_review(&mut record, turn);
    }
    go_on(workflow, record, commands, turn)
}

/// Takes the saga out of a review that blocks it. Its waits and its deadline move by the time it waited for
/// a person: that time was not the customer's.
fn leave_review(record: &mut SagaRecord, turn: Turn<'_>) {
    if !is_blocked(record) {
        return;
    }
    give_time_back(record, turn.now);
    record.case = None;
    record.status = match record.direction {
        Direction::Forward => Status::Running,
        Direction::Cancelling { .. } => Status::Compensating,
    };
}

/// Whether it waits for a person.
fn is_blocked(record: &SagaRecord) -> bool {
    record.status == Status::NeedsReview
        && record
            .case
            .as_ref()
            .is_none_or(|case| !case.reason.only_reports())
}

fn release(
    workflow: &Workflow,
    mut record: SagaRecord,
    turn: Turn<'_>,
) -> Result<Box<Commit>, String> {
    give_time_back(&mut record, turn.now);
    let Some(held) = record.by_hand.held.take() else {
        return Err("the saga is not held".to_owned());
    };
    let time = turn.now.duration_since(held.since);
    operation::release(&mut record, held.since, time);
    let mut commands = Vec::new();
    // Whoever drove it has let go, and may have gone with an answer.
    if record.owner != turn.replica && record.has_in_flight() {
        take_ownership(&mut record, turn);
        commands = operation::send_again_all(&mut record, turn);
    }
    go_on(workflow, record, commands, turn)
}

/// Moves the saga's deadline and what it waits for by the time in which its clocks stood still, held or in
/// review or both, as far as that has not been done. What had passed before stays past.
fn give_time_back(record: &mut SagaRecord, now: Timestamp) {
    let held = record.by_hand.held.as_ref().map(|held| held.since);
    let case = record.case.as_ref().map(|case| case.since);
    let case = case.filter(|_| is_blocked(record));
    let Some(stopped) = held.into_iter().chain(case).min() else {
        return;
    };
    let given_back = record.by_hand.given_back_until.replace(now);
    let since = given_back.map_or(stopped, |until| stopped.max(until));
    let still = now.duration_since(since);
    let moved = |instant: Timestamp| match instant > since {
        true => after(instant, still),
        false => instant,
    };
    record.deadline_at = record.deadline_at.map(moved);
    for awaiting in &mut record.awaiting {
        awaiting.until = moved(awaiting.until);
    }
    for (name, fact) in &mut record.facts {
        if is_until(name)
            && let Ok(until) = serde_json::from_value::<Timestamp>(fact.clone())
        {
            *fact = json!(moved(until));
        }
    }
}

/// What a person says of one operation.
struct Testimony<'a> {
    operation_id: Option<&'a OperationId>,
    finding: Finding,
    evidence: &'a str,
    reply: Option<&'a Value>,
    by: &'a str,
}

fn resolve(
    workflow: &Workflow,
    mut record: SagaRecord,
    said: &Testimony<'_>,
    turn: Turn<'_>,
) -> Result<Box<Commit>, String> {
    let (index, side) = choose(&record, said, turn)?;
    not_asked_any_more(&mut record.steps[index], turn);
    let by_undo = is_settled_by_undo(&record, index, turn);
    let attested = json!({ "answer": "attested", "by": said.by, "evidence": cut(said.evidence) });
    let step = record.steps[index].name.clone();
    operation::operation(&mut record, index, side).outcome = match said.finding {
        Finding::Applied => Outcome::Applied {
            reply: said.reply.cloned().unwrap_or(attested),
            at: turn.now,
        },
        // A compensation that has certainly not been applied is due once more.
        Finding::NotApplied if side == Side::Undo => Outcome::Planned,
        // Whoever looked has seen what is there. An attempt may still be on its way, and only the undo
        // forbids it.
        Finding::NotApplied if by_undo => Outcome::Unknown {
            since: turn.now,
            last: format!(
                "attested not applied by {}: {}",
                said.by,
                cut(said.evidence)
            ),
        },
        Finding::NotApplied => Outcome::NotApplied {
            code: "attested".to_owned(),
            message: format!("by {}: {}", said.by, cut(said.evidence)),
            at: turn.now,
        },
    };
    record.last_progress_at = turn.now;
    leave_review(&mut record, turn);
    let commit = go_on(workflow, record, Vec::new(), turn)?;
    match &commit.record.case {
        Some(case)
            if said.finding == Finding::Applied && case.reason == CaseReason::UnreadableReply =>
        {
            Err(format!(
                "the workflow reads the answer of step {step}, so say what it was with --reply: {}",
                case.message
            ))
        }
        Some(_) | None => Ok(commit),
    }
}

/// The request with the operation it is about, where only one can be meant.
pub(super) fn pinned(
    record: &SagaRecord,
    request: &OperatorRequest,
    turn: Turn<'_>,
) -> OperatorRequest {
    let mut pinned = request.clone();
    if let OperatorVerb::Resolve {
        operation_id: operation_id @ None,
        finding: Some(_),
        ..
    } = &mut pinned.verb
        && let [only] = open_operations(record, turn.now).as_slice()
    {
        *operation_id = Some(only.operation_id.clone());
    }
    pinned
}

/// The operation that is meant: the one named, or the only one.
fn choose(
    record: &SagaRecord,
    said: &Testimony<'_>,
    turn: Turn<'_>,
) -> Result<(usize, Side), String> {
    let open = questions::open(record, turn.now);
    let known = open_operations(record, turn.now);
    let names: Vec<&str> = known
        .iter()
        .map(|open| open.operation_id.as_str())
        .collect();
    let index = match said.operation_id {
        Some(id) => known.iter().position(|open| open.operation_id == *id),
        None if known.len() == 1 => Some(0),
        None => return Err(format!("name one of the operations {}", names.join(", "))),
    };
    let Some((place, operation)) =
        index.and_then(|index| Some((*open.get(index)?, known.get(index)?)))
    else {
        let id = said.operation_id.map_or("", OperationId::as_str);
        return Err(format!(
            "operation {id} is not open: open {} {}",
            if names.len() == 1 { "is" } else { "are" },
            names.join(", ")
        ));
    };
    if said.finding == Finding::NotApplied && !operation.may_be_not_applied {
        return Err(format!(
            "that {} was not applied is certain already; say that it was done by hand, or try again",
            operation.operation_id
        ));
    }
    Ok(place)
}

/// Whether a step said not to have been applied is settled by its undo all the same: where the participant
/// forbids what it has not seen, and an attempt may still arrive.
fn is_settled_by_undo(record: &SagaRecord, index: usize, turn: Turn<'_>) -> bool {
    let step = &record.steps[index];
    let keeps_tombstones = match &step.forward.participant {
        Participant::Core => true,
        Participant::Region(region) => turn.rules.capabilities_of(region).tombstone,
    };
    // No attempt has arrived, with proof.
    let is_certain = matches!(
        step.forward.outcome,
        Outcome::BackingOff {
            doubtful: false,
            ..
        }
    );
    // The id stands for something else there: ours is never executed, and the undo would offset that.
    let is_taken = record.case.as_ref().is_some_and(|case| {
        case.reason == CaseReason::OperationConflict
            && case.operation_id.as_ref() == Some(&step.forward.operation_id)
    });
    step.undo.is_some() && keeps_tombstones && !is_certain && !is_taken
}

/// What a person has said need not be asked of the participant.
fn not_asked_any_more(step: &mut StepRecord, turn: Turn<'_>) {
    if let Some(status) = &mut step.status
        && status.outcome.is_pending()
    {
        status.outcome = Outcome::NotApplied {
            code: "not_needed".to_owned(),
            message: "a person has said what became of it".to_owned(),
            at: turn.now,
        };
    }
}

/// Closes a case that no saga waits for.
fn close(
    mut record: SagaRecord,
    request: &OperatorRequest,
    turn: Turn<'_>,
) -> Result<Box<Commit>, String> {
    let OperatorVerb::Resolve {
        finding: None,
        evidence,
        ..
    } = &request.verb
    else {
        return Err("this case has no operation: close it with a reason and no finding".to_owned());
    };
    record.result = Some(json!({
        "closed_by": request.by,
        "reason": cut(&request.reason),
        "evidence": cut(evidence),
        "case": record.case,
    }));
    finish(&mut record, Status::Completed, turn);
    committed(store(record, Vec::new()))
}
