//! The test cases: for each leaf of the spec its valid and invalid values and how a change is rolled out.

use serde_json::{Value, json};

/// How a change of a leaf is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// No object changes; only the operator behaves differently.
    OperatorOnly,
    /// Objects change, but no pod does.
    ObjectsOnly,
    /// Members are restarted one by one; ephemeral members are replaced one by one.
    Restart,
    /// Members are replaced one by one, each on a new volume.
    Replace,
    /// Members are added or removed.
    Scale,
    /// Can be chosen at creation and is rejected afterwards.
    FixedOnceCreated,
}

/// A leaf and its edits.
pub(crate) struct LeafCase {
    /// The path.
    pub(crate) leaf: &'static str,
    pub(crate) kind: ChangeKind,
    /// The fields of the initial spec, besides the version.
    pub(crate) base: Value,
    /// The first value.
    pub(crate) set: Value,
    /// The second value.
    pub(crate) change: Value,
    /// Invalid values; empty where only the type could be wrong.
    pub(crate) bad: Vec<Value>,
    /// Whether the leaf cannot be unset.
    pub(crate) required: bool,
    /// Whether the initial value cannot be restored.
    pub(crate) is_irreversible: bool,
}

impl LeafCase {
    /// Returns the kind for ephemeral members.
    pub(crate) fn kind_when_ephemeral(&self) -> ChangeKind {
        // Ephemeral data is always deleted with the resource.
        if self.leaf == "spec.storage.onDelete" {
            ChangeKind::OperatorOnly
        } else {
            self.kind
        }
    }

    /// Returns true if the case applies. Ephemeral members have no StorageClass.
    pub(crate) fn applies_to(&self, ephemeral: bool) -> bool {
        !(ephemeral && self.kind == ChangeKind::Replace)
    }

    /// Returns whether unsetting and restoring are rejected. An ephemeral size limit may shrink.
    pub(crate) fn rejects(&self, ephemeral: bool) -> (bool, bool) {
        let can_shrink = ephemeral && self.leaf == "spec.storage.size";
        (
            self.required && !can_shrink,
            self.is_irreversible && !can_shrink,
        )
    }

    fn with_base(self, base: Value) -> Self {
        Self { base, ..self }
    }

    fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    fn irreversible(self) -> Self {
        Self {
            is_irreversible: true,
            ..self
        }
    }
}

fn case<const N: usize>(
    leaf: &'static str,
    kind: ChangeKind,
    [set, change]: [Value; 2],
    bad: [Value; N],
) -> LeafCase {
    let (base, bad) = (json!({}), bad.into());
    LeafCase {
        leaf,
        kind,
        base,
        set,
        change,
        bad,
        required: false,
        is_irreversible: false,
    }
}

fn digest(digit: &str) -> Value {
    json!(format!("sha256:{}", digit.repeat(64)))
}

/// Returns all cases. Each runs twice: with persistent and with ephemeral members.
pub(crate) fn all() -> Vec<LeafCase> {
    use ChangeKind::{OperatorOnly, Restart, Scale};
    let mut cases = vec![
        // A downgrade below the running version is rejected.
        case(
            "spec.version",
            Restart,
            [json!("3.6.17"), json!("3.6.18")],
            [json!("v3.6.16"), json!("3.5.35"), json!(3)],
        )
        .required(),
        case("spec.version", Restart, [json!("3.7.3"), json!("3.7.4")], [json!("3.6.16"), json!("3.8.0")])
            .required()
            .irreversible(),
        // An option that an earlier patch release lacks.
        case("spec.version", Restart, [json!("3.5.34"), json!("3.5.33")], [json!("3.5.12"), json!("3.7.3")])
            .with_base(json!({ "version": "3.5.35", "etcd": { "options": { "compaction-sleep-interval": "1s" } } }))
            .required(),
        case("spec.members", Scale, [json!(5), json!(1)], [json!(0), json!(8), json!("three")]),
        case("spec.paused", OperatorOnly, [json!(true), json!(false)], [json!("yes")]),
        case(
            "spec.image.repository",
            Restart,
            [json!("mirror.example/etcd"), json!("mirror.example:5000/infra/etcd")],
            [json!("mirror.example/etcd:v3.6.16"), json!("https://mirror.example/etcd"), json!("")],
        ),
        case("spec.image.digest", Restart, [digest("0"), digest("a")], [digest("A"), json!("sha256:12")]),
        case(
            "spec.image.pullSecrets",
            Restart,
            [json!(["corp"]), json!(["corp", "other"])],
            [json!(["corp", "corp"]), json!([""])],
        ),
        case(
            "spec.heal.replaceAfter",
            OperatorOnly,
            [json!("10m"), json!("30s")],
            [json!("29s"), json!("0"), json!("soon")],
        ),
        case(
            "spec.heal.replaceDrainedAfter",
            OperatorOnly,
            [json!("2h"), json!("30s")],
            [json!("29s"), json!("0"), json!("1d")],
        ),
    ];
    cases.extend(storage());
    cases.extend(scheduling());
    cases.extend(access());
    cases.extend(etcd());
    cases.extend(windows());
    cases.extend(backups());
    cases.extend(equivalent_values());
    cases
}

/// Returns cases whose values are equal to the default, written differently.
fn equivalent_values() -> Vec<LeafCase> {
    use ChangeKind::OperatorOnly;
    vec![
        case(
            "spec.storage.size",
            OperatorOnly,
            [json!("4096Mi"), json!(4_294_967_296_u64)],
            [],
        ),
        case(
            "spec.resources.requests.cpu",
            OperatorOnly,
            [json!("100m"), json!("0.1")],
            [],
        ),
        case(
            "spec.resources.requests.memory",
            OperatorOnly,
            [json!("256Mi"), json!("0.25Gi")],
            [],
        ),
        case(
            "spec.resources.limits.memory",
            OperatorOnly,
            [json!("2Gi"), json!("2048Mi")],
            [],
        ),
        case(
            "spec.etcd.quota",
            OperatorOnly,
            [json!("3Gi"), json!("3072Mi")],
            [],
        ),
        case(
            "spec.etcd.autoCompaction",
            OperatorOnly,
            [json!("60m"), json!("3600s")],
            [],
        ),
    ]
}

fn storage() -> Vec<LeafCase> {
    use ChangeKind::{FixedOnceCreated, ObjectsOnly, OperatorOnly, Replace, Restart};
    vec![
        case(
            "spec.storage.size",
            Restart,
            [json!("8Gi"), json!("9Gi")],
            [json!("512Mi"), json!("lots")],
        )
        .required()
        .irreversible(),
        case(
            "spec.storage.class",
            Replace,
            [json!("fast"), json!("faster")],
            [json!("")],
        )
        .with_base(json!({ "storage": { "class": "slow" } }))
        .required(),
        case(
            "spec.storage.onDelete",
            ObjectsOnly,
            [json!("Delete"), json!("Keep")],
            [json!("Sometimes")],
        ),
        case(
            "spec.storage.keepRemovedFor",
            OperatorOnly,
            [json!("1h"), json!("0")],
            [json!("1d"), json!("")],
        ),
        case(
            "spec.storage.ephemeral",
            FixedOnceCreated,
            [json!(true), json!(false)],
            [json!("yes")],
        ),
        case(
            "spec.resources.requests.cpu",
            Restart,
            [json!("500m"), json!(1)],
            [json!("0"), json!("-1"), json!("two")],
        ),
        case(
            "spec.resources.requests.memory",
            Restart,
            [json!("512Mi"), json!("2Gi")],
            // The default limit is 2Gi.
            [json!("512m"), json!("16Mi"), json!("lots"), json!("3Gi")],
        ),
        case(
            "spec.resources.requests.memory",
            Restart,
            [json!("512Mi"), json!("3Gi")],
            [json!("5Gi")],
        )
        .with_base(json!({ "resources": { "limits": { "memory": "4Gi" } } })),
        case(
            "spec.resources.requests.memory",
            Restart,
            [json!("512Mi"), json!("1Gi")],
            [json!("2Gi")],
        )
        .with_base(json!({ "resources": { "limits": { "memory": "1Gi" } } })),
        case(
            "spec.resources.limits.memory",
            Restart,
            [json!("256Mi"), json!("4Gi")],
            // The default request is 256Mi.
            [json!("16Mi"), json!("lots"), json!("128Mi")],
        ),
        case(
            "spec.resources.limits.cpu",
            Restart,
            [json!("1"), json!(2)],
            // The default request is 100m.
            [json!("0"), json!("50m")],
        ),
    ]
}

fn scheduling() -> Vec<LeafCase> {
    use ChangeKind::{Restart, Scale};
    let long = "a".repeat(64);
    let tolerations = |one: Value| json!({ "scheduling": { "tolerations": [one] } });
    let toleration =
        || tolerations(json!({ "key": "a", "operator": "Exists", "effect": "NoExecute" }));
    vec![
        case(
            "spec.scheduling.spread.across",
            Restart,
            [json!("Zone"), json!("Node")],
            [json!("Rack")],
        ),
        case(
            "spec.scheduling.spread.require",
            Restart,
            [json!(true), json!(false)],
            [json!("yes")],
        ),
        case("spec.members", Scale, [json!(5), json!(1)], [json!(0)])
            .with_base(json!({ "scheduling": { "spread": { "require": true } } })),
        case(
            "spec.scheduling.nodeSelector",
            Restart,
            [json!({ "disk": "ssd" }), json!({ "disk": "nvme" })],
            [
                json!({ "disk": long }),
                json!({ "disk": 1 }),
                json!({ "a disk": "ssd" }),
                json!({ "disk": "an ssd" }),
            ],
        ),
        case(
            "spec.scheduling.tolerations",
            Restart,
            [
                json!([{ "operator": "Exists" }]),
                json!([{ "key": "a", "value": "b" }]),
            ],
            [json!({ "operator": "Exists" }), json!([{ "taint": "a" }])],
        ),
        case(
            "spec.scheduling.tolerations[].key",
            Restart,
            [json!("a"), json!("b")],
            [json!(1)],
        )
        .with_base(tolerations(json!({ "operator": "Exists" }))),
        case(
            "spec.scheduling.tolerations[].operator",
            Restart,
            [json!("Exists"), json!("Equal")],
            [json!(1), json!("Maybe")],
        )
        .with_base(tolerations(json!({ "key": "a" }))),
        case(
            "spec.scheduling.tolerations[].value",
            Restart,
            [json!("x"), json!("y")],
            [json!(true)],
        )
        .with_base(tolerations(json!({ "key": "a" }))),
        case(
            "spec.scheduling.tolerations[].effect",
            Restart,
            [json!("NoSchedule"), json!("NoExecute")],
            [json!(1), json!("Never")],
        )
        .with_base(tolerations(json!({ "key": "a", "operator": "Exists" }))),
        case(
            "spec.scheduling.tolerations[].tolerationSeconds",
            Restart,
            [json!(60), json!(120)],
            [json!("soon")],
        )
        .with_base(toleration()),
        case(
            "spec.scheduling.priorityClass",
            Restart,
            [json!("high"), json!("higher")],
            [json!(""), json!("a".repeat(254)), json!("High!")],
        ),
    ]
}

fn access() -> Vec<LeafCase> {
    use ChangeKind::ObjectsOnly;
    let annotation = |key: &str, value: &str| json!({ key: value });
    vec![
        case(
            "spec.service.type",
            ObjectsOnly,
            [json!("NodePort"), json!("LoadBalancer")],
            [json!("ExternalName")],
        ),
        case(
            "spec.service.annotations",
            ObjectsOnly,
            [
                annotation("a.example/b", "c"),
                annotation("a.example/d", "e"),
            ],
            [json!({ "a.example/b": 1 }), json!({ "a b": "c" })],
        ),
        // A Service that is created with annotations.
        case(
            "spec.service.annotations",
            ObjectsOnly,
            [
                annotation("a.example/d", "e"),
                annotation("a.example/d", "f"),
            ],
            [json!(["a.example/b"])],
        )
        .with_base(json!({ "service": { "annotations": { "a.example/b": "c" } } })),
        case(
            "spec.tls.client.extraNames",
            ObjectsOnly,
            [
                json!(["etcd.corp.example"]),
                json!(["*.corp.example", "etcd"]),
            ],
            [
                json!(["10.0.0.1"]),
                json!(["etcd.example:2379"]),
                json!(["etcd", "etcd"]),
            ],
        ),
    ]
}

fn etcd() -> Vec<LeafCase> {
    use ChangeKind::Restart;
    let option = |name: &str, value: &str| json!({ name: value });
    vec![
        case(
            "spec.etcd.quota",
            Restart,
            [json!("2Gi"), json!("1Gi")],
            [json!("5Gi"), json!("512m"), json!("lots")],
        ),
        case(
            "spec.etcd.autoCompaction",
            Restart,
            [json!("2h"), json!("0")],
            [json!("1d"), json!("")],
        ),
        case(
            "spec.etcd.options",
            Restart,
            [
                option("snapshot-count", "5000"),
                option("heartbeat-interval", "200"),
            ],
            [
                option("data-dir", "/tmp"),
                option("--snapshot-count", "5000"),
                option("snapshot-count", "some"),
            ],
        ),
    ]
}

fn windows() -> Vec<LeafCase> {
    use ChangeKind::OperatorOnly;
    let with_window =
        || json!({ "maintenance": { "windows": [{ "start": "02:00", "duration": "3h" }] } });
    vec![
        case(
            "spec.maintenance.windows",
            OperatorOnly,
            [
                json!([{ "start": "02:00", "duration": "3h" }]),
                json!([{ "start": "03:00", "duration": "1h" }]),
            ],
            [
                json!([{ "start": "02:00" }]),
                json!([{ "start": "02:00", "duration": "3h", "timeZone": "Europe/Atlantis" }]),
            ],
        ),
        case(
            "spec.maintenance.windows[].days",
            OperatorOnly,
            [json!(["Sat"]), json!(["Sun", "Mon"])],
            [json!(["Someday"]), json!(["Sat", "Sat"])],
        )
        .with_base(with_window()),
        case(
            "spec.maintenance.windows[].start",
            OperatorOnly,
            [json!("03:00"), json!("23:59")],
            [json!("24:00"), json!("3:00")],
        )
        .with_base(with_window())
        .required(),
        case(
            "spec.maintenance.windows[].duration",
            OperatorOnly,
            [json!("10m"), json!("24h")],
            [json!("5m"), json!("25h"), json!("1d")],
        )
        .with_base(with_window())
        .required(),
        case(
            "spec.maintenance.windows[].timeZone",
            OperatorOnly,
            [json!("Europe/Berlin"), json!("Asia/Tokyo")],
            [json!("+01:00"), json!("")],
        )
        .with_base(with_window()),
    ]
}

fn backups() -> Vec<LeafCase> {
    use ChangeKind::ObjectsOnly;
    let with_backups = || json!({ "backup": { "store": "prod", "schedule": "@daily" } });
    let number = |leaf| {
        case(
            leaf,
            ObjectsOnly,
            [json!(3), json!(24)],
            [json!(1001), json!(-1)],
        )
        .with_base(with_backups())
    };
    vec![
        case(
            "spec.backup",
            ObjectsOnly,
            [
                json!({ "store": "prod", "schedule": "@daily" }),
                json!({ "store": "other", "schedule": "0 3 * * *", "drill": "@weekly" }),
            ],
            [json!({ "store": "prod" }), json!({ "schedule": "@daily" })],
        ),
        case(
            "spec.backup.store",
            ObjectsOnly,
            [json!("other"), json!("third")],
            [json!(""), json!(7)],
        )
        .with_base(with_backups())
        .required(),
        case(
            "spec.backup.schedule",
            ObjectsOnly,
            [json!("@hourly"), json!("30 4 * * MON")],
            [
                json!("daily"),
                json!("@yearly"),
                json!("* * * *"),
                json!("* * * * * *"),
            ],
        )
        .with_base(with_backups())
        .required(),
        case(
            "spec.backup.timeZone",
            ObjectsOnly,
            [json!("Europe/Berlin"), json!("Asia/Tokyo")],
            [json!("")],
        )
        .with_base(with_backups()),
        case(
            "spec.backup.ifMissed",
            ObjectsOnly,
            [json!("Skip"), json!("Once")],
            [json!("Never")],
        )
        .with_base(with_backups()),
        case(
            "spec.backup.deadline",
            ObjectsOnly,
            [json!("10m"), json!("24h")],
            [json!("30s"), json!("25h"), json!("soon")],
        )
        .with_base(with_backups()),
        number("spec.backup.keep.last"),
        number("spec.backup.keep.hourly"),
        number("spec.backup.keep.daily"),
        number("spec.backup.keep.weekly"),
        number("spec.backup.keep.monthly"),
        case(
            "spec.backup.drill",
            ObjectsOnly,
            [json!("@weekly"), json!("0 5 * * SUN")],
            [json!("weekly"), json!("")],
        )
        .with_base(with_backups()),
        case(
            "spec.backup.suspend",
            ObjectsOnly,
            [json!(true), json!(false)],
            [json!("yes")],
        )
        .with_base(with_backups()),
    ]
}
