use super::*;

fn lines(began: &[&str]) -> Vec<Line> {
    let line = |began: &&str| Line {
        began: (*began).to_owned(),
        text: format!("{{\"location\":\"{began}\"}}\n"),
    };
    began.iter().map(line).collect()
}

fn written(lines: Vec<Line>, max_bytes: usize) -> (String, TaskResult) {
    let mut output = Vec::new();
    let result = write_lines(lines, max_bytes, &mut output).unwrap();
    (String::from_utf8(output).unwrap(), result)
}

#[test]
fn the_outcome_has_the_number_of_lines_and_their_checksum() {
    let (text, result) = written(lines(&["1", "2", "3"]), 1 << 20);
    assert_eq!(text.lines().count(), 3);
    assert_eq!(
        result,
        TaskResult::Listed {
            listed: 3,
            omitted: 0,
            sha256: hex(&Sha256::digest(text.as_bytes())),
        }
    );
}

#[test]
fn a_listing_that_is_too_large_has_the_newest_backups() {
    // By location: the first cluster has older and newer backups than the second.
    let all = lines(&["3", "1", "5", "4", "2"]);
    let one = all[0].text.len() + LOG_PREFIX_BYTES;
    let (text, result) = written(all.clone(), one * 3);
    let expected: String = [0, 2, 3]
        .map(|index: usize| all[index].text.clone())
        .concat();
    assert_eq!(text, expected);
    assert!(matches!(
        result,
        TaskResult::Listed {
            listed: 3,
            omitted: 2,
            ..
        }
    ));
    assert_eq!(written(all, one - 1).0, "");
}
