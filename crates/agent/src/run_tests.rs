use super::*;

fn failed(message: String) -> Outcome {
    Outcome::Failed(TaskFailure {
        reason: FailureReason::Other,
        message,
    })
}

#[test]
fn an_outcome_fits_into_a_termination_message() {
    for text in ["a", "\"", "\n", "\u{1}", "ä", "🦀"] {
        let encoded = encode(failed(text.repeat(5000))).unwrap();
        assert!(encoded.len() <= MAX_OUTCOME_BYTES, "{}", encoded.len());
        let Outcome::Failed(failure) = serde_json::from_str(&encoded).unwrap() else {
            panic!("the outcome changed");
        };
        assert!(failure.message.starts_with(text) && failure.message.ends_with('…'));
        assert!(encoded.len() > MAX_OUTCOME_BYTES / 8, "{}", encoded.len());
    }
}

#[test]
fn a_short_outcome_is_not_cut() {
    let outcome = failed("The store is full.".to_owned());
    let encoded = encode(outcome.clone()).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&encoded).unwrap(), outcome);
}

#[test]
fn an_invalid_request_is_reported_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let options = AgentOptions {
        request: dir.path().join("request.json"),
        result: dir.path().join("result.json"),
        work: dir.path().to_owned(),
        log: "off".to_owned(),
    };
    let missing = read_request(&options).unwrap_err();
    assert_eq!(missing.reason, FailureReason::InvalidRequest);
    std::fs::write(&options.request, "{\"task\": \"fly\"}").unwrap();
    let unknown = read_request(&options).unwrap_err();
    assert_eq!(unknown.reason, FailureReason::InvalidRequest);
    std::fs::write(&options.request, vec![b' '; 2 << 20]).unwrap();
    let long = read_request(&options).unwrap_err();
    assert_eq!(long.reason, FailureReason::InvalidRequest);
}
