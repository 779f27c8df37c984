//! The data: which flags of etcd users may set, and which they may not, with the reason. To allow one more, add a row,
//! and look into `etcd --help` of each version for what it is called there.

use crate::etcd::releases::Minor;

/// A flag that users may set.
pub(crate) struct Known {
    /// What the newest etcd calls it, without dashes.
    pub name: &'static str,
    /// What it is set to.
    pub value: Value,
    /// What it is unless it is set, for the docs.
    pub default: &'static str,
    /// What it does, for the docs.
    pub about: &'static str,
    /// Minor releases in which it is not simply there under this name.
    pub elsewhere: &'static [Elsewhere],
}

/// What a flag is set to.
pub(crate) enum Value {
    /// A whole number between these.
    Number(u64, u64),
    /// A number and its unit, between these.
    Duration(&'static str, &'static str),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// What becomes of a flag in an earlier minor release.
pub(crate) struct Elsewhere {
    pub minor: Minor,
    /// What it is called there; nothing if it does not exist.
    pub name: Option<&'static str>,
    /// The first patch that has it.
    pub since: u16,
}

/// Words for yes and no.
const YES_OR_NO: Value = Value::Word(&["true", "false"]);

/// Not in 3.5.
const NOT_IN_3_5: &[Elsewhere] = &[Elsewhere {
    minor: Minor(3, 5),
    name: None,
    since: 0,
}];

/// Called otherwise in 3.5.
macro_rules! in_3_5 {
    ($name:literal) => {
        in_3_5!($name, 0)
    };
    ($name:literal, $since:literal) => {
        &[Elsewhere {
            minor: Minor(3, 5),
            name: Some($name),
            since: $since,
        }]
    };
}

macro_rules! known {
    ($name:literal, $value:expr, $default:literal, $about:literal) => {
        known!($name, $value, $default, $about, &[])
    };
    ($name:literal, $value:expr, $default:literal, $about:literal, $elsewhere:expr) => {
        Known {
            name: $name,
            value: $value,
            default: $default,
            about: $about,
            elsewhere: $elsewhere,
        }
    };
}

/// Every flag that users may set. Bounds are etcd's own, or where it has none, what is hardly a slip.
pub(crate) const KNOWN: &[Known] = &[
    known!(
        "auth-token-ttl",
        Value::Number(1, 86_400),
        "300",
        "seconds for which a token of a user is good"
    ),
    known!(
        "backend-batch-interval",
        Value::Duration("1ms", "10s"),
        "100ms",
        "how long writes are gathered before they are committed to the database"
    ),
    known!(
        "backend-batch-limit",
        Value::Number(1, 1_000_000),
        "10000",
        "how many are gathered at most"
    ),
    known!(
        "backend-bbolt-freelist-type",
        Value::Word(&["array", "map"]),
        "map",
        "how free pages are kept"
    ),
    // The bounds are bcrypt's from below, and those of patience.
    known!(
        "bcrypt-cost",
        Value::Number(4, 16),
        "10",
        "how hard passwords of users are to guess, and to check"
    ),
    known!(
        "compact-hash-check-time",
        // At nought etcd does not start.
        Value::Duration("1s", "24h"),
        "1m",
        "how often members compare what was compacted",
        in_3_5!("experimental-compact-hash-check-time")
    ),
    known!(
        "compaction-batch-limit",
        Value::Number(1, 1_000_000),
        "1000",
        "how many revisions are removed at a time",
        in_3_5!("experimental-compaction-batch-limit")
    ),
    known!(
        "compaction-sleep-interval",
        Value::Duration("0s", "10s"),
        "10ms",
        "the pause between two such times",
        // CHANGELOG-3.5: it came with 3.5.16.
        in_3_5!("experimental-compaction-sleep-interval", 16)
    ),
    known!(
        "corrupt-check-time",
        Value::Duration("1m", "168h"),
        "never",
        "how often members compare all of their data, which costs",
        in_3_5!("experimental-corrupt-check-time")
    ),
    // etcd does not start beyond 50 s, nor below five heartbeats.
    known!(
        "election-timeout",
        Value::Number(50, LONGEST_ELECTION),
        "1000",
        "milliseconds without a heartbeat after which a new leader is elected"
    ),
    known!(
        "enable-grpc-gateway",
        YES_OR_NO,
        "true",
        "whether there is an API in JSON"
    ),
    known!(
        "grpc-keepalive-interval",
        Value::Duration("0s", "24h"),
        "2h",
        "how often etcd pings idle clients, 0s for never"
    ),
    // No more than by default: Evenkeel itself pings every 5 s, and would be cut off.
    known!(
        "grpc-keepalive-min-time",
        Value::Duration("0s", "5s"),
        "5s",
        "how often clients may ping; who does more often is cut off"
    ),
    known!(
        "grpc-keepalive-timeout",
        Value::Duration("1s", "1h"),
        "20s",
        "how long a ping is waited for"
    ),
    known!(
        "heartbeat-interval",
        Value::Number(10, LONGEST_ELECTION / HEARTBEATS),
        "100",
        "milliseconds between a leader's heartbeats"
    ),
    known!(
        "log-level",
        Value::Word(&["debug", "info", "warn", "error", "panic", "fatal"]),
        "info",
        "what is logged"
    ),
    known!(
        "max-concurrent-streams",
        Value::Number(100, 4_294_967_295),
        "all it wants",
        "how many each client may open"
    ),
    // etcd warns of more than 10 MiB.
    known!(
        "max-request-bytes",
        Value::Number(1024, 10_485_760),
        "1572864",
        "how large a request may be"
    ),
    // Nought would be without end, and fill the volume.
    known!(
        "max-snapshots",
        Value::Number(1, 100),
        "5",
        "how many snapshots are kept beside the data"
    ),
    known!(
        "max-txn-ops",
        Value::Number(1, 65_536),
        "128",
        "how many operations a transaction may have"
    ),
    known!(
        "max-wals",
        Value::Number(1, 100),
        "5",
        "how many files of the log are kept"
    ),
    known!(
        "metrics",
        Value::Word(&["basic", "extensive"]),
        "basic",
        "extensive: how long each kind of request takes, too"
    ),
    known!(
        "snapshot-count",
        Value::Number(1, 10_000_000),
        "10000, and in 3.5 100000",
        "after how many writes the log is cut"
    ),
    // CHANGELOG-3.5: it came with 3.5.8.
    known!(
        "tls-min-version",
        Value::Word(&["TLS1.2", "TLS1.3"]),
        "TLS1.2",
        "the oldest TLS that is spoken"
    ),
    known!(
        "warning-apply-duration",
        Value::Duration("1ms", "1h"),
        "100ms",
        "how long a write may take to be applied before it is logged",
        in_3_5!("experimental-warning-apply-duration")
    ),
    known!(
        "warning-unary-request-duration",
        Value::Duration("1ms", "1h"),
        "300ms",
        "how long a request may take before it is logged",
        NOT_IN_3_5
    ),
    known!(
        "watch-progress-notify-interval",
        Value::Duration("1s", "24h"),
        "10m",
        "how often watchers are told where they are",
        in_3_5!("experimental-watch-progress-notify-interval")
    ),
];

/// Flags that users may not set, and what to do instead. The first that fits is told.
pub(crate) struct Refused {
    pub names: &'static [&'static str],
    /// What names begin with.
    pub prefixes: &'static [&'static str],
    pub why: &'static str,
}

/// Every flag that etcd has and users may not set, as far as there is more to say than that.
pub(crate) const REFUSED: &[Refused] = &[
    Refused {
        names: &[],
        prefixes: &["-"],
        why: "leave out the dashes",
    },
    Refused {
        names: &[],
        prefixes: &["experimental-"],
        why: "leave out experimental-: write what the newest etcd calls it, and each version gets it by the name that \
              it knows",
    },
    Refused {
        names: &["quota-backend-bytes"],
        prefixes: &[],
        why: "use spec.etcd.quota",
    },
    Refused {
        names: &[],
        prefixes: &["auto-compaction-"],
        why: "use spec.etcd.autoCompaction",
    },
    Refused {
        names: &["force-new-cluster"],
        prefixes: &[],
        why: "it makes two clusters of one, and both take writes",
    },
    Refused {
        names: &["unsafe-no-fsync"],
        prefixes: &[],
        why: "writes that were acknowledged would be lost with a node",
    },
    Refused {
        names: &["name", "data-dir", "wal-dir"],
        prefixes: &["initial-", "listen-", "advertise-", "discovery"],
        why: "Evenkeel sees to members' names, addresses and data",
    },
    Refused {
        names: &[
            "cert-file",
            "key-file",
            "trusted-ca-file",
            "auto-tls",
            "self-signed-cert-validity",
        ],
        prefixes: &["client-", "peer-"],
        why: "Evenkeel sees to certificates, and members trust no others: see spec.tls",
    },
    Refused {
        names: &[
            "feature-gates",
            "max-learners",
            "strict-reconfig-check",
            "pre-vote",
            "downgrade-check-time",
        ],
        prefixes: &[],
        why: "Evenkeel counts on what it is",
    },
    Refused {
        names: &[
            "logger",
            "log-outputs",
            "log-format",
            "enable-log-rotation",
            "log-rotation-config-json",
        ],
        prefixes: &[],
        why: "the log goes where kubectl logs finds it, as it is",
    },
    Refused {
        names: &["config-file"],
        prefixes: &[],
        why: "all that is configured stands in this resource",
    },
    Refused {
        names: &["auth-token"],
        prefixes: &[],
        why: "tokens that are signed need keys in the pods, which Evenkeel does not bring there",
    },
    Refused {
        names: &["gateway", "grpc-proxy", "enable-v2", "v2-deprecation"],
        prefixes: &["proxy"],
        why: "Evenkeel runs members, with what etcd calls its v3 API, and nothing else",
    },
];

/// What is said of a flag of which nothing is known.
pub(crate) const UNKNOWN: &str = "not known to Evenkeel, which passes on only what it knows to be harmless: docs/tasks/options.md lists it";

/// How many heartbeats etcd wants in an election's time.
pub(crate) const HEARTBEATS: u64 = 5;
/// In milliseconds; etcd does not start with more.
const LONGEST_ELECTION: u64 = 50_000;
/// Which two options go together, and what they are by default.
pub(crate) const HEARTBEAT: (&str, u64) = ("heartbeat-interval", 100);
pub(crate) const ELECTION: (&str, u64) = ("election-timeout", 1000);
