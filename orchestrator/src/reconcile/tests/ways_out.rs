//! The ways out that are printed are those the core allows.

use jiff::SignedDuration;

use super::fixture::{completed, crediting, rules, saga, start};
use super::record;
use crate::reconcile::difference::Kind;
use crate::reconcile::judge::judge;
use crate::saga::operator::Verb;
use crate::saga::record::Status;

const RETRY: &str = "orchestrator saga retry deposit/acme/p1 --reason TEXT";
const RECHECK: &str = "orchestrator case recheck deposit/acme/p1 --reason TEXT";
const CASE: &str = "orchestrator case show deposit/acme/p1";

#[test]
fn a_saga_that_stands_still_is_told_only_what_it_may_do() {
    for (verbs, command) in [
        (vec![Verb::Hold, Verb::Recheck, Verb::RetryNow], RETRY),
        (vec![Verb::Hold, Verb::Recheck], RECHECK),
        (vec![Verb::Hold], "orchestrator saga show deposit/acme/p1"),
    ] {
        let mut sides = crediting();
        record(&mut sides).last_progress_at = rules().now - SignedDuration::from_mins(16);
        record(&mut sides).verbs = verbs;
        let found = judge(&sides, &rules());
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(
            (found[0].kind, found[0].fix.command.as_str()),
            (Kind::Stuck, command)
        );
    }
}

#[test]
fn an_unknown_outcome_is_asked_about_only_where_it_may_be() {
    let show = "orchestrator saga show deposit/acme/p1 --history";
    for (status, verbs, command) in [
        (
            Status::NeedsReview,
            vec![Verb::Recheck, Verb::Resolve],
            RECHECK,
        ),
        (Status::NeedsReview, vec![Verb::Resolve], CASE),
        (Status::NeedsReview, vec![Verb::Release], CASE),
        (Status::Completed, Vec::new(), show),
    ] {
        let mut sides = if status == Status::Completed {
            completed()
        } else {
            crediting()
        };
        let record = record(&mut sides);
        record.status = status;
        record.verbs = verbs;
        record.unknown = vec![(saga().own_operation(), start())];
        let found = judge(&sides, &rules());
        assert_eq!(found.len(), 1, "{found:#?}");
        let fix = found[0].fix.command.as_str();
        assert_eq!((found[0].kind, fix), (Kind::UnknownOutcome, command));
    }
}
