use super::*;
use crate::testing::{FailAt, Faulty, archive};

#[tokio::test]
async fn a_check_leaves_nothing_behind() {
    let objects = Faulty::new();
    let checked = check(&archive(&objects)).await.unwrap();
    assert!(checked.conditional_writes);
    assert_eq!(objects.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn missing_conditional_writes_are_noticed() {
    let objects = Faulty::without_conditional_writes();
    let checked = check(&archive(&objects)).await.unwrap();
    assert!(!checked.conditional_writes);
    assert_eq!(objects.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_store_that_denies_deletions_fails_the_check() {
    let objects = Faulty::new();
    objects.deny_deletes_of("");
    let error = check(&archive(&objects)).await.unwrap_err();
    assert_eq!(error.reason, FailureReason::AccessDenied);
    assert!(error.message.contains("s3:DeleteObject"), "{error}");
}

#[tokio::test]
async fn every_failing_operation_fails_the_check() {
    let mut failures = 0;
    for n in 0..40 {
        let objects = Faulty::new();
        objects.fail(n, FailAt::Before, true);
        let result = check(&archive(&objects)).await;
        if !objects.has_failed() {
            assert!(result.is_ok());
            break;
        }
        assert!(result.is_err(), "operation {n}");
        failures += 1;
    }
    assert!(failures >= 8, "{failures}");
}
