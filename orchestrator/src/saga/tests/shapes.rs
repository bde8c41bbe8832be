//! What a workflow can be made of: parallel steps, sleeps, choices and loops.

use contracts::id::SagaId;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::script::{Quote, Reserve, Tell, WORKFLOW};
use crate::saga::action::{Command, Decision};
use crate::saga::flow::{Cx, Flow, Selected, join};
use crate::saga::input::{Answer, Arrival, Input, Reply, Signal};
use crate::saga::record::{SagaRecord, Status};
use crate::saga::{Turn, Workflow, decide, rules, start};

#[test]
fn parallel_steps_sleep_select_and_loops() {
    fn run(cx: &mut Cx<'_>, _: &Value) -> Flow<Value> {
        let (a, b) = (
            cx.step(Reserve { to: 1 }).run(),
            cx.step(Quote { to: 2 }).run(),
        );
        join(a, b)?;
        cx.sleep(SignedDuration::from_secs(60))?;
        for _ in 0..2 {
            match cx.select::<Value>(&["left", "right"], SignedDuration::from_secs(60))? {
                Selected::Signal { name, .. } => cx.phase(&name),
                Selected::Deadline => cx.phase("deadline"),
            }
            cx.step(Tell { to: 3 }).run()?;
        }
        Ok(json!(cx.now()?))
    }
    static LOOPS: Workflow = Workflow { run, ..WORKFLOW };
    let now: Timestamp = "2030-01-01T00:00:00Z".parse().expect("instant");
    let arrival = Arrival {
        message_id: "m".to_owned(),
        input: Value::Null,
    };
    let mut sent = Vec::new();
    let mut record = None;
    let mut take = |decision: Decision, record: &mut Option<SagaRecord>| match decision {
        Decision::Commit(commit) => {
            sent.extend(commit.commands);
            *record = Some(commit.record);
            sent.iter()
                .map(|command: &Command| command.step.clone())
                .collect::<Vec<_>>()
                .join(" ")
        }
        Decision::Ignore(..) => panic!("ignored"),
    };
    let turn = |seconds| Turn {
        now: now
            .checked_add(SignedDuration::from_secs(seconds))
            .expect("time"),
        replica: "a",
        rules: &rules::DEFAULT,
    };
    let first = start(&LOOPS, SagaId::from_parts("four", &["l"]), arrival, turn(0));
    assert_eq!(take(first, &mut record), "reserve quote");
    let ok = |step: &str| {
        Input::Reply(Reply {
            operation_id: SagaId::from_parts("four", &["l"]).operation(step),
            attempt: 1,
            answer: Answer::Applied(Value::Null),
        })
    };
    let mut next = |mut input, seconds| {
        let record_before = record.take().expect("record");
        if let Input::Reply(reply) = &mut input {
            // The id of a repeatable step names its parameters as well.
            let asked = record_before.operations().map(|known| &known.operation_id);
            let start = format!("{}/", reply.operation_id);
            let asked = asked.filter(|id| id.as_str().starts_with(&start));
            reply.operation_id = asked.last().expect("asked for").clone();
        }
        let decision = decide(&LOOPS, record_before, input, turn(seconds));
        let sent = take(decision, &mut record);
        (sent, record.as_ref().expect("record").status)
    };
    assert_eq!(
        next(ok("quote"), 1),
        ("reserve quote".to_owned(), Status::Running)
    );
    assert_eq!(
        next(ok("reserve"), 2),
        ("reserve quote".to_owned(), Status::Waiting)
    );
    assert_eq!(next(Input::Timer, 63).1, Status::Waiting);
    let right = Signal {
        message_id: "r".to_owned(),
        name: "right".to_owned(),
        id: "r".to_owned(),
        body: Value::Null,
    };
    assert_eq!(next(Input::Signal(right), 64).0, "reserve quote tell");
    assert_eq!(next(ok("tell"), 65).1, Status::Waiting);
    assert_eq!(next(Input::Timer, 126).0, "reserve quote tell tell#2");
    assert_eq!(next(ok("tell#2"), 127).1, Status::Completed);
    let record = record.expect("record");
    assert_eq!(record.phase.as_deref(), Some("deadline"));
    assert_eq!(record.facts["select/chosen"]["name"], "right");
}
