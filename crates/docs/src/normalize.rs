//! Compares actual output with the output that a page shows. Parts that differ from run to run are ignored: the
//! random suffix of a member's name, ages and times, addresses, nodes, sizes, the leader among the members, and line
//! wrapping. Everything else must be equal, word for word.
//!
//! On a page a line `…` stands for any lines, and a word that ends with `…` for the rest of its line.

/// The decision log starts here. Its content depends on timing, so only its presence is compared.
const DECISION_LOG_HEADING: &str = "Last decisions";

/// Returns the first difference between the shown and the actual output, if there is one.
pub fn difference(shown: &str, actual: &str) -> Option<String> {
    let (shown, actual) = (normalized_lines(shown), normalized_lines(actual));
    if lines_match(&shown, &actual) {
        return None;
    }
    let at = shown
        .iter()
        .zip(&actual)
        .take_while(|(one, other)| line_matches(one, other))
        .count();
    let line = |lines: &[String]| lines.get(at).map_or("(end)", String::as_str).to_owned();
    Some(format!(
        "the page shows `{}`, the output is `{}`",
        line(&shown),
        line(&actual)
    ))
}

fn lines_match(shown: &[String], actual: &[String]) -> bool {
    match (shown.split_first(), actual.split_first()) {
        (None, None) => true,
        (Some((any, rest)), _) if any == "…" => {
            (0..=actual.len()).any(|skipped| lines_match(rest, &actual[skipped..]))
        }
        (Some((one, rest)), Some((other, others))) => {
            line_matches(one, other) && lines_match(rest, others)
        }
        _ => false,
    }
}

fn line_matches(shown: &str, actual: &str) -> bool {
    match shown.split_once('…') {
        Some((beginning, _)) => actual.starts_with(beginning),
        None => shown == actual,
    }
}

/// Returns the lines of a text without the parts that vary.
fn normalized_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim_end) {
        if line.starts_with(DECISION_LOG_HEADING) {
            lines.push(DECISION_LOG_HEADING.to_owned());
            let has_decisions = text
                .lines()
                .any(|line| line.trim_start().starts_with("decision "));
            lines.push(
                if has_decisions {
                    "decisions"
                } else {
                    "no decision"
                }
                .to_owned(),
            );
            break;
        }
        // Wrapped lines are joined.
        let wrapped =
            line.starts_with("          ") && lines.last().is_some_and(|last| !last.is_empty());
        match lines.last_mut().filter(|_| wrapped) {
            Some(last) => last.extend([" ", line.trim_start()]),
            None => lines.push(line.to_owned()),
        }
    }
    let mut normalized: Vec<String> = Vec::new();
    let mut rows: Option<Vec<String>> = None;
    for line in &lines {
        let words = normalize_line(line, rows.is_some());
        if line.is_empty() || line.starts_with(' ') || line == "…" {
            normalized.extend(sorted_rows(rows.take()));
        }
        match &mut rows {
            Some(rows) => rows.push(words),
            None => normalized.push(words),
        }
        if is_table_heading(line) {
            rows = Some(Vec::new());
        }
    }
    normalized.extend(sorted_rows(rows));
    normalized.retain(|line| !line.is_empty());
    // The order of lines with the same label varies.
    normalized
        .chunk_by_mut(|one, other| line_label(one) == line_label(other))
        .for_each(<[String]>::sort);
    normalized
}

/// Returns the label at the start of a line, such as `Waiting for:`; the whole line if there is none.
fn line_label(line: &str) -> &str {
    const MAX_WORDS: usize = 2;
    let label = line
        .match_indices(':')
        .map(|(at, _)| &line[..=at])
        .next()
        .filter(|label| label.split(' ').count() <= MAX_WORDS);
    label.unwrap_or(line)
}

/// Sorts the rows of a table, because the order of members varies.
fn sorted_rows(rows: Option<Vec<String>>) -> Vec<String> {
    let mut rows = rows.unwrap_or_default();
    rows.sort();
    rows
}

/// Returns true if the line is a table heading.
fn is_table_heading(line: &str) -> bool {
    let is_title = |word: &str| {
        word.chars()
            .all(|it| it.is_ascii_uppercase() || "()-".contains(it))
            && word.len() > 1
    };
    line.split_whitespace().count() > 1 && line.split_whitespace().all(is_title)
}

/// Returns the words of a line with the varying parts masked.
fn normalize_line(line: &str, in_table: bool) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut rest = line.split_whitespace().peekable();
    while let Some(word) = rest.next() {
        let is_number = word.parse::<f64>().is_ok();
        if is_number
            && rest
                .peek()
                .is_some_and(|unit| ["B", "KiB", "MiB", "GiB"].contains(unit))
        {
            rest.next();
            words.push("SIZE".to_owned());
        } else if in_table && (is_number || word == "-") {
            words.push("COUNT".to_owned());
        } else {
            words.push(normalize_word(word));
        }
    }
    words.join(" ")
}

/// Returns a word with the varying parts masked. Punctuation around it stays.
fn normalize_word(word: &str) -> String {
    let is_punctuation = |it: char| "(),.;:`'\"".contains(it);
    let core = word.trim_matches(is_punctuation);
    let Some(at) = word.find(core).filter(|_| !core.is_empty()) else {
        return word.to_owned();
    };
    let (before, after) = (&word[..at], &word[at + core.len()..]);
    let kind = if is_time(core) {
        "TIME".to_owned()
    } else if is_age(core) {
        "AGE".to_owned()
    } else if is_address(core) {
        "ADDRESS".to_owned()
    } else if core.strip_prefix("node-").is_some_and(is_digits) {
        "NODE".to_owned()
    } else if core.len() >= 12 && core.chars().all(|it| it.is_ascii_hexdigit()) {
        "ID".to_owned()
    } else {
        mask_name_suffixes(core)
    };
    format!("{before}{kind}{after}")
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_digit())
}

/// Matches 2026-11-16, 2026-11-16T12:00:00Z and 12:00:00Z.
fn is_time(word: &str) -> bool {
    if let Some(clock) = word.strip_suffix('Z').filter(|word| !word.contains('T')) {
        let parts: Vec<_> = clock.split(':').collect();
        return parts.len() == 3 && parts.iter().all(|part| part.len() == 2 && is_digits(part));
    }
    let date = word.split('T').next().unwrap_or_default();
    let parts: Vec<_> = date.split('-').collect();
    parts.len() == 3 && parts[0].len() == 4 && parts.iter().all(|part| is_digits(part))
}

/// Matches 5m30s.
fn is_age(word: &str) -> bool {
    let mut digits = 0;
    for letter in word.chars() {
        match letter {
            '0'..='9' => digits += 1,
            'd' | 'h' | 'm' | 's' if digits > 0 => digits = 0,
            _ => return false,
        }
    }
    digits == 0 && !word.is_empty()
}

fn is_address(word: &str) -> bool {
    let host = word.split(':').next().unwrap_or_default();
    host.split('.').count() == 4 && host.split('.').all(is_digits)
}

/// Masks the random suffix in names such as `orders-k7f2x`.
fn mask_name_suffixes(word: &str) -> String {
    let parts = word.split_inclusive(['-', '.', '/', ':', ',']);
    let mut masked = String::new();
    let mut after_hyphen = false;
    for part in parts {
        let core = part.trim_end_matches(['-', '.', '/', ':', ',']);
        let is_suffix = after_hyphen
            && core.len() == 5
            && core
                .chars()
                .all(|it| "bcdfghjklmnpqrstvwxz2456789".contains(it));
        masked.push_str(if is_suffix { "NAME" } else { core });
        masked.push_str(&part[core.len()..]);
        after_hyphen = part.ends_with('-');
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "orders: available, tolerates 1 member failure\netcd 3.6.16, 3/3 members healthy, namespace default\nHealthy\n\n\
        MEMBER        ROLE    HEALTH   RAFT LAG  DB SIZE  VERSION  NODE\n\
        orders-k7f2x  leader  healthy  0         20 KiB   3.6.16   node-1\n\
        orders-b2b2b  voter   healthy  0         20 KiB   3.6.16   node-2\n\n\
        Current action:  none\nReason:          orders-k7f2x is missing, and this is a long sentence\n                 that continues below, for 5m\n\
        Certificates:    valid; next expiry in 364d (orders-etcd-client-tls), auto-renewed\n";

    #[test]
    fn names_ages_sizes_nodes_wrapping_and_the_leader_may_differ() {
        let actual = "orders: available, tolerates 1 member failure\netcd 3.6.16, 3/3 members healthy, namespace default\nHealthy\n\n\
            MEMBER        ROLE    HEALTH   RAFT LAG  DB SIZE  VERSION  NODE\n\
            orders-94b9x  voter   healthy  2         1.5 MiB  3.6.16   node-3\n\
            orders-zzzzz  leader  healthy  -         20 KiB   3.6.16   node-1\n\n\
            Current action:  none\nReason:          orders-zzzzz is missing, and this\n                 is a long sentence that continues below, for 11m\n\
            Certificates:    valid; next expiry in 2h (orders-etcd-client-tls), auto-renewed\n";
        assert_eq!(difference(SHOWN, actual), None);
    }

    #[test]
    fn times_of_the_clock_may_differ() {
        let shown = "Problem  A member is down. Since 09:04:48Z (1s), until 2026-11-16T12:00:00Z.";
        let actual =
            "Problem  A member is down. Since 15:18:33Z (2m32s), until 2026-11-18T09:00:00Z.";
        assert_eq!(difference(shown, actual), None);
        for other in ["15:18Z", "15:18:3Z", "ab:cd:efZ"] {
            assert!(difference(shown, &actual.replace("15:18:33Z", other)).is_some());
        }
    }

    #[test]
    fn lines_with_the_same_label_may_come_in_any_order() {
        for label in ["Evidence:", "Waiting for:"] {
            let one = format!("{label}  orders-bbbbb (voter): unreachable");
            let other = format!("{label}  orders-ccccc (voter): unhealthy");
            let shown = format!("Blocker:  no quorum\n{one}\n{other}\nGoal:  3 members");
            let swapped = format!("Blocker:  no quorum\n{other}\n{one}\nGoal:  3 members");
            assert_eq!(difference(&shown, &swapped), None);
            let elsewhere = format!("{one}\nBlocker:  no quorum\n{other}\nGoal:  3 members");
            assert!(difference(&shown, &elsewhere).is_some());
            let repeated = format!("Blocker:  no quorum\n{one}\n{one}\nGoal:  3 members");
            assert!(difference(&shown, &repeated).is_some());
        }
    }

    #[test]
    fn everything_else_must_be_equal() {
        let changes = [
            ("tolerates 1 member failure", "tolerates no member failure"),
            ("3/3", "2/3"),
            ("leader", "voter"),
            ("voter   healthy", "voter   unhealthy"),
            (
                "Current action:  none\n",
                "Current action:  none\nWaiting for:     a quorum\n",
            ),
            (
                "Certificates:    valid; next expiry in 364d (orders-etcd-client-tls), auto-renewed\n",
                "",
            ),
            ("is a long", "is no long"),
            ("orders-etcd-client-tls", "orders-etcd-peer-tls"),
        ];
        for (before, after) in changes {
            assert!(SHOWN.contains(before));
            assert!(
                difference(SHOWN, &SHOWN.replacen(before, after, 1)).is_some(),
                "{after} passes"
            );
        }
    }

    #[test]
    fn only_a_page_may_leave_lines_out() {
        assert_eq!(
            difference("first\n…\nlast line…", "first\na\nb\nlast line of all"),
            None
        );
        assert_eq!(difference("first\n…", "first"), None);
        assert!(difference("first\n…\nlast", "first\na\nb").is_some());
        assert!(difference("first\na\nlast", "first\n…\nlast").is_some());
    }

    #[test]
    fn only_the_presence_of_decisions_is_compared() {
        let (one, other) = (
            "Last decisions, x:\n\n  decision    adding a member\n",
            "Last decisions, x:\n\n  decision    wait\n",
        );
        assert_eq!(difference(one, other), None);
        assert!(difference(one, "Last decisions, x:\n").is_some());
        assert!(difference(one, "No decisions to show.\n").is_some());
    }

    #[test]
    fn varying_words_are_masked() {
        let words = [
            ("pod/orders-k7f2x", "pod/orders-NAME"),
            ("orders-etcd-client", "orders-etcd-client"),
            (
                "orders-k7f2x.orders-etcd-peer.shop.svc",
                "orders-NAME.orders-etcd-peer.shop.svc",
            ),
            ("(2m5s", "(AGE"),
            ("2026-11-16T10:00:00.123Z,", "TIME,"),
            ("10.201.3.4:2379", "ADDRESS"),
            ("node-2;", "NODE;"),
            ("8e9e05c521646901,", "ID,"),
            ("3.6.16", "3.6.16"),
            ("3/3", "3/3"),
        ];
        for (word, expected) in words {
            assert_eq!(normalize_word(word), expected);
        }
    }
}
