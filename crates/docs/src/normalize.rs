//! Whether what is seen is what the page shows. What differs from one run to the next is not looked at: the random end of a
//! member's name, ages and times, addresses, nodes, sizes; who of the members leads; where lines are wrapped. All else must be
//! the same, word for word.
//!
//! On a page a line `…` stands for any lines, and a word that ends so for the rest of its line.

/// Before this, what is told of a cluster is the same each time; after it come decisions, which depend on who was quicker.
const LOG: &str = "What was decided last";

/// How what is seen differs from what is shown; nothing if it does not.
pub fn difference(shown: &str, seen: &str) -> Option<String> {
    let (shown, seen) = (shape(shown), shape(seen));
    if matches(&shown, &seen) {
        return None;
    }
    let at = shown
        .iter()
        .zip(&seen)
        .take_while(|(one, other)| same(one, other))
        .count();
    let line = |lines: &[String]| {
        lines
            .get(at)
            .map_or("nothing more", String::as_str)
            .to_owned()
    };
    Some(format!(
        "the page shows `{}`, and seen is `{}`",
        line(&shown),
        line(&seen)
    ))
}

fn matches(shown: &[String], seen: &[String]) -> bool {
    match (shown.split_first(), seen.split_first()) {
        (None, None) => true,
        (Some((any, rest)), _) if any == "…" => {
            (0..=seen.len()).any(|skipped| matches(rest, &seen[skipped..]))
        }
        (Some((one, rest)), Some((other, others))) => same(one, other) && matches(rest, others),
        _ => false,
    }
}

fn same(shown: &str, seen: &str) -> bool {
    match shown.split_once('…') {
        Some((beginning, _)) => seen.starts_with(beginning),
        None => shown == seen,
    }
}

/// The lines of a text, as far as they are the same each time.
fn shape(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim_end) {
        if line.starts_with(LOG) {
            lines.push(LOG.to_owned());
            let tells = text
                .lines()
                .any(|line| line.trim_start().starts_with("decided "));
            lines.push(if tells { "decisions" } else { "no decision" }.to_owned());
            break;
        }
        // What was wrapped is put together again.
        let wrapped =
            line.starts_with("          ") && lines.last().is_some_and(|last| !last.is_empty());
        match lines.last_mut().filter(|_| wrapped) {
            Some(last) => last.extend([" ", line.trim_start()]),
            None => lines.push(line.to_owned()),
        }
    }
    let mut shaped: Vec<String> = Vec::new();
    let mut rows: Option<Vec<String>> = None;
    for line in &lines {
        let words = plain(line, rows.is_some());
        if line.is_empty() || line.starts_with(' ') || line == "…" {
            shaped.extend(sorted(rows.take()));
        }
        match &mut rows {
            Some(rows) => rows.push(words),
            None => shaped.push(words),
        }
        if is_heading(line) {
            rows = Some(Vec::new());
        }
    }
    shaped.extend(sorted(rows));
    shaped.retain(|line| !line.is_empty());
    // Nor in which order the same is told of them.
    shaped
        .chunk_by_mut(|one, other| label(one) == label(other))
        .for_each(<[String]>::sort);
    shaped
}

/// The word that a line begins with, if it is a label; the line itself if it is not.
fn label(line: &str) -> &str {
    line.split(' ')
        .next()
        .filter(|word| word.ends_with(':'))
        .unwrap_or(line)
}

/// Which of the members is named first is chance.
fn sorted(rows: Option<Vec<String>>) -> Vec<String> {
    let mut rows = rows.unwrap_or_default();
    rows.sort();
    rows
}

/// Whether rows of a table follow.
fn is_heading(line: &str) -> bool {
    let is_title = |word: &str| {
        word.chars()
            .all(|it| it.is_ascii_uppercase() || "()-".contains(it))
            && word.len() > 2
    };
    line.split_whitespace().count() > 1 && line.split_whitespace().all(is_title)
}

/// A line's words, without what differs.
fn plain(line: &str, in_table: bool) -> String {
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
            words.push(plain_word(word));
        }
    }
    words.join(" ")
}

/// A word, without what differs. Signs around it stay.
fn plain_word(word: &str) -> String {
    let is_sign = |it: char| "(),.;:`'\"".contains(it);
    let core = word.trim_matches(is_sign);
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
        without_suffixes(core)
    };
    format!("{before}{kind}{after}")
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_ascii_digit())
}

/// 2026-11-16 or 2026-11-16T12:00:00Z.
fn is_time(word: &str) -> bool {
    let date = word.split('T').next().unwrap_or_default();
    let parts: Vec<_> = date.split('-').collect();
    parts.len() == 3 && parts[0].len() == 4 && parts.iter().all(|part| is_digits(part))
}

/// 5m30s.
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

/// `orders-k7f2x` without its end, wherever it stands.
fn without_suffixes(word: &str) -> String {
    let parts = word.split_inclusive(['-', '.', '/', ':', ',']);
    let mut plain = String::new();
    let mut after_hyphen = false;
    for part in parts {
        let core = part.trim_end_matches(['-', '.', '/', ':', ',']);
        let is_suffix = after_hyphen
            && core.len() == 5
            && core
                .chars()
                .all(|it| "bcdfghjklmnpqrstvwxz2456789".contains(it));
        plain.push_str(if is_suffix { "NAME" } else { core });
        plain.push_str(&part[core.len()..]);
        after_hyphen = part.ends_with('-');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "orders: writable, survives 1 more failure\netcd 3.6.16, 3/3 members serve, namespace default\nHealthy\n\n\
        MEMBER        ROLE    HEALTH  LAG  SIZE    VERSION  NODE\n\
        orders-k7f2x  leader  serves  0    20 KiB  3.6.16   node-1\n\
        orders-b2b2b  voter   serves  0    20 KiB  3.6.16   node-2\n\n\
        Doing:    nothing\nBecause:  orders-k7f2x is gone, and that is a long sentence that goes\n          on below, for 5m\n\
        Certs:    good; the first to expire is orders-etcd-client-tls, in 364d\n";

    #[test]
    fn names_ages_sizes_nodes_wraps_and_who_leads_may_differ() {
        let seen = "orders: writable, survives 1 more failure\netcd 3.6.16, 3/3 members serve, namespace default\nHealthy\n\n\
            MEMBER        ROLE    HEALTH  LAG  SIZE     VERSION  NODE\n\
            orders-94b9x  voter   serves  2    1.5 MiB  3.6.16   node-3\n\
            orders-zzzzz  leader  serves  -    20 KiB   3.6.16   node-1\n\n\
            Doing:    nothing\nBecause:  orders-zzzzz is gone, and that\n          is a long sentence that goes on below, for 11m\n\
            Certs:    good; the first to expire is orders-etcd-client-tls, in 2h\n";
        assert_eq!(difference(SHOWN, seen), None);
    }

    #[test]
    fn what_is_told_of_each_may_be_told_in_any_order() {
        let (one, other) = (
            "Evidence: orders-bbbbb (voter): silent",
            "Evidence: orders-ccccc (voter): it does not serve",
        );
        let shown = format!("Blocker:  a majority\n{one}\n{other}\nYou can:  wait");
        assert_eq!(
            difference(
                &shown,
                &format!("Blocker:  a majority\n{other}\n{one}\nYou can:  wait")
            ),
            None
        );
        assert!(
            difference(
                &shown,
                &format!("{one}\nBlocker:  a majority\n{other}\nYou can:  wait")
            )
            .is_some()
        );
        assert!(
            difference(
                &shown,
                &format!("Blocker:  a majority\n{one}\n{one}\nYou can:  wait")
            )
            .is_some()
        );
    }

    #[test]
    fn everything_else_must_be_the_same() {
        let lies = [
            ("survives 1 more failure", "survives no further failure"),
            ("3/3", "2/3"),
            ("leader", "voter"),
            ("voter   serves", "voter   down"),
            (
                "Doing:    nothing\n",
                "Doing:    nothing\nWaits:    a majority\n",
            ),
            (
                "Certs:    good; the first to expire is orders-etcd-client-tls, in 364d\n",
                "",
            ),
            ("is a long", "is no long"),
            ("orders-etcd-client-tls", "orders-etcd-peer-tls"),
        ];
        for (true_, lie) in lies {
            assert!(SHOWN.contains(true_));
            assert!(
                difference(SHOWN, &SHOWN.replacen(true_, lie, 1)).is_some(),
                "{lie} passes"
            );
        }
    }

    #[test]
    fn a_page_may_leave_something_out_and_only_a_page() {
        assert_eq!(
            difference("first\n…\nlast one…", "first\na\nb\nlast one of all"),
            None
        );
        assert_eq!(difference("first\n…", "first"), None);
        assert!(difference("first\n…\nlast", "first\na\nb").is_some());
        assert!(difference("first\na\nlast", "first\n…\nlast").is_some());
    }

    #[test]
    fn of_decisions_only_that_there_are_some() {
        let (one, other) = (
            "What was decided last, x:\n\n  decided     to add\n",
            "What was decided last, x:\n\n  decided     to wait\n",
        );
        assert_eq!(difference(one, other), None);
        assert!(difference(one, "What was decided last, x:\n").is_some());
        assert!(difference(one, "No decision is on record.\n").is_some());
    }

    #[test]
    fn words_that_differ_each_time_are_known() {
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
        for (word, wanted) in words {
            assert_eq!(plain_word(word), wanted);
        }
    }
}
