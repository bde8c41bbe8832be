//! Going forward: the workflow runs over what is known and says what it wants next.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::action::{Command, Event};
use super::ending::finish;
use super::flow::{Cx, Flow, Suspend};
use super::policy::Policy;
use super::record::{CaseReason, SagaRecord, Status, StepRecord, TurnReason};
use super::review::open_case;
use super::{Advance, Turn, Workflow, compensation, operation};

/// Runs the workflow once and takes in what it wants.
pub(super) fn advance(
    workflow: &Workflow,
    record: &mut SagaRecord,
    turn: Turn<'_>,
    commands: &mut Vec<Command>,
    events: &mut Vec<Event>,
) -> Advance {
    // A case blocks, except the one that only reports a late step: when that step is done, it goes on.
    let late = record
        .case
        .as_ref()
        .is_some_and(|case| case.reason == CaseReason::DeadlinePassed);
    if record.status == Status::NeedsReview && !late {
        return Advance::Rest;
    }
    if !late
        && !record.is_past_pivot()
        && record
            .deadline_at
            .is_some_and(|deadline| deadline <= turn.now)
    {
        let message = format!(
            "not done by its deadline {}",
            record.deadline_at.unwrap_or(turn.now)
        );
        if has_patient_step(record) {
            let text = format!("{message}; the customer has paid, so it goes on being tried");
            // It has done its work: the saga is late from here on, and is not late again.
            record.deadline_at = None;
            open_case(
                record,
                CaseReason::DeadlinePassed,
                text,
                serde_json::Value::Null,
                turn,
            );
            return Advance::Rest;
        }
        compensation::turn_back(record, TurnReason::TimedOut, message, turn);
        return Advance::Again;
    }

    let (outcome, cx) = run(workflow, record, turn);
    let outcome = refuse_changed_code(&cx, outcome);
    let Cx {
        wanted,
        awaiting,
        facts,
        events: emitted,
        attributes,
        phase,
        ..
    } = cx;
    record.facts.extend(facts);
    record.attributes.extend(attributes);
    record.phase = phase.or_else(|| record.phase.take());
    record.awaiting = awaiting;

    match outcome {
        Ok(result) => {
            take_events(record, events, emitted);
            issue(record, wanted, commands, turn);
            // A step asked for and not waited for still has to come to an end.
            if record
                .operations()
                .any(|operation| operation.outcome.is_pending())
            {
                record.status = Status::Running;
                return Advance::Rest;
            }
            record.result = Some(result);
            finish(record, Status::Completed, turn);
            Advance::Rest
        }
        Err(Suspend::Waiting) => {
            take_events(record, events, emitted);
            issue(record, wanted, commands, turn);
            if late && has_patient_step(record) {
                return Advance::Rest;
            }
            record.case = record
                .case
                .take()
                .filter(|case| case.reason == CaseReason::Overdue);
            let pending = record
                .operations()
                .any(|operation| operation.outcome.is_pending());
            record.status = match (pending, record.awaiting.is_empty()) {
                (true, _) => Status::Running,
                (false, false) => Status::Waiting,
                (false, true) => {
                    let message = "the workflow waits for nothing".to_owned();
                    open_case(
                        record,
                        CaseReason::Poison,
                        message,
                        serde_json::Value::Null,
                        turn,
                    );
                    Status::NeedsReview
                }
            };
            Advance::Rest
        }
        Err(Suspend::Stop { message, .. }) if record.is_past_pivot() => {
            open_case(
                record,
                CaseReason::RefusedAfterPivot,
                message,
                serde_json::Value::Null,
                turn,
            );
            Advance::Rest
        }
        Err(Suspend::Stop { reason, message }) => {
            compensation::turn_back(record, reason, message, turn);
            Advance::Again
        }
        Err(Suspend::Review { reason, message }) => {
            open_case(record, reason, message, serde_json::Value::Null, turn);
            Advance::Rest
        }
    }
}

/// A step that has been issued and is passed over was renamed, removed or moved: the code changed under a
/// live saga. Going on would do its work a second time under another name, or end without it.
fn refuse_changed_code<T>(cx: &Cx<'_>, outcome: Flow<T>) -> Flow<T> {
    let goes_on = match &outcome {
        Ok(_) => true,
        Err(Suspend::Waiting) => !cx.wanted.is_empty(),
        Err(Suspend::Stop { .. } | Suspend::Review { .. }) => false,
    };
    match cx.passed_over() {
        Some(step) if goes_on => Err(Suspend::Review {
            reason: CaseReason::Nondeterministic,
            message: format!(
                "step {} was issued and the workflow passes it over: the code changed under a live saga; \
                 nothing was sent",
                step.name
            ),
        }),
        Some(_) | None => outcome,
    }
}

/// Runs the workflow over what is known.
fn run<'r>(
    workflow: &Workflow,
    record: &'r SagaRecord,
    turn: Turn<'_>,
) -> (Flow<serde_json::Value>, Cx<'r>) {
    let mut cx = Cx::new(record, turn.now);
    let outcome = catch_unwind(AssertUnwindSafe(|| (workflow.run)(&mut cx, &record.input)))
        .unwrap_or_else(|panic| {
            Err(Suspend::Review {
                reason: CaseReason::Poison,
                message: format!("the workflow panicked: {}", text(&*panic)),
            })
        });
    (outcome, cx)
}

/// Takes down what the saga would ask for first, as of unknown outcome and without sending it: repeatable steps
/// leave without a commit, so another replica may have sent them on facts that nobody knows any more.
pub(super) fn note_unstored(workflow: &Workflow, record: &mut SagaRecord, turn: Turn<'_>) {
    let (_, cx) = run(workflow, record, turn);
    let Cx {
        wanted, attributes, ..
    } = cx;
    record.attributes.extend(attributes);
    for mut step in wanted.into_iter().filter(|step| step.forward.repeatable) {
        let last = "may have been sent before the request to cancel was known".to_owned();
        step.forward.outcome = operation::given_up(true, last, turn);
        record.steps.push(step);
    }
}

fn issue(
    record: &mut SagaRecord,
    wanted: Vec<StepRecord>,
    commands: &mut Vec<Command>,
    turn: Turn<'_>,
) {
    for step in wanted {
        record.steps.push(step);
        commands.extend(operation::send_forward(
            record,
            record.steps.len() - 1,
            turn,
        ));
    }
}

fn take_events(record: &mut SagaRecord, events: &mut Vec<Event>, emitted: Vec<Event>) {
    record
        .events
        .extend(emitted.iter().map(|event| event.name.to_owned()));
    events.extend(emitted);
}

fn has_patient_step(record: &SagaRecord) -> bool {
    record
        .steps
        .iter()
        .any(|step| step.policy == Policy::Patient && step.forward.outcome.is_pending())
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}
