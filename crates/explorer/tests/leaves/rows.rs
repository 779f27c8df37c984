//! One row for each leaf of the spec, or more: what it can be, what it cannot be, and how a change of it is rolled out.

use serde_json::{Value, json};

/// How a change of a leaf is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing is touched: it is the operator that behaves otherwise.
    Nothing,
    /// No pod is touched, but something else is.
    Beside,
    /// Members are restarted one by one; replaced one by one where their data is in their pods.
    Rolled,
    /// Members are replaced one by one, each on another volume.
    Moved,
    /// Members come or go.
    Scaled,
    /// It is refused once there is data, and can be chosen before.
    Kept,
    /// It is always refused.
    Never,
}

/// A leaf, and what is done with it.
pub(crate) struct Row {
    /// Its path.
    pub(crate) leaf: &'static str,
    pub(crate) kind: Kind,
    /// What the spec has beside the version, before.
    pub(crate) base: Value,
    /// What it is set to.
    pub(crate) set: Value,
    /// What it is changed to.
    pub(crate) change: Value,
    /// What it cannot be; nothing where that would have to be of another type.
    pub(crate) bad: Vec<Value>,
    /// Whether it cannot be left out.
    pub(crate) required: bool,
    /// Whether it cannot be as it was before.
    pub(crate) no_way_back: bool,
}

impl Row {
    /// What kind it is of where data is in the pods, but for how these are rolled out.
    pub(crate) fn in_pods(&self) -> Kind {
        // There it always goes with the resource.
        if self.leaf == "spec.storage.onDelete" {
            Kind::Nothing
        } else {
            self.kind
        }
    }

    /// Whether it is walked with data in the pods: these have no class.
    pub(crate) fn is_walked(&self, ephemeral: bool) -> bool {
        !(ephemeral && self.kind == Kind::Moved)
    }

    /// Whether it cannot be left out, or be as it was before; what is in pods may be made smaller.
    pub(crate) fn stays(&self, ephemeral: bool) -> (bool, bool) {
        let grows = ephemeral && self.leaf == "spec.storage.size";
        (self.required && !grows, self.no_way_back && !grows)
    }

    fn on(self, base: Value) -> Self {
        Self { base, ..self }
    }

    fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    fn without_a_way_back(self) -> Self {
        Self {
            no_way_back: true,
            ..self
        }
    }
}

fn row<const N: usize>(
    leaf: &'static str,
    kind: Kind,
    [set, change]: [Value; 2],
    bad: [Value; N],
) -> Row {
    let (base, bad) = (json!({}), bad.into());
    Row {
        leaf,
        kind,
        base,
        set,
        change,
        bad,
        required: false,
        no_way_back: false,
    }
}

fn digest(digit: &str) -> Value {
    json!(format!("sha256:{}", digit.repeat(64)))
}

/// All rows. Each is walked twice: with data on volumes, and with data in the pods.
pub(crate) fn all() -> Vec<Row> {
    use Kind::{Nothing, Rolled, Scaled};
    let mut rows = vec![
        // A downgrade is refused for what members run.
        row(
            "spec.version",
            Rolled,
            [json!("3.6.17"), json!("3.6.18")],
            [json!("v3.6.16"), json!("3.5.35"), json!(3)],
        )
        .required(),
        row("spec.version", Rolled, [json!("3.7.3"), json!("3.7.4")], [json!("3.6.16"), json!("3.8.0")])
            .required()
            .without_a_way_back(),
        // An option that an earlier patch does not have.
        row("spec.version", Rolled, [json!("3.5.34"), json!("3.5.33")], [json!("3.5.12"), json!("3.7.3")])
            .on(json!({ "version": "3.5.35", "etcd": { "options": { "compaction-sleep-interval": "1s" } } }))
            .required(),
        row("spec.members", Scaled, [json!(5), json!(1)], [json!(0), json!(8), json!("three")]),
        row("spec.paused", Nothing, [json!(true), json!(false)], [json!("yes")]),
        row(
            "spec.image.repository",
            Rolled,
            [json!("mirror.example/etcd"), json!("mirror.example:5000/infra/etcd")],
            [json!("mirror.example/etcd:v3.6.16"), json!("https://mirror.example/etcd"), json!("")],
        ),
        row("spec.image.digest", Rolled, [digest("0"), digest("a")], [digest("A"), json!("sha256:12")]),
        row(
            "spec.image.pullSecrets",
            Rolled,
            [json!(["corp"]), json!(["corp", "other"])],
            [json!(["corp", "corp"]), json!([""])],
        ),
        row(
            "spec.heal.replaceAfter",
            Nothing,
            [json!("10m"), json!("30s")],
            [json!("29s"), json!("0"), json!("soon")],
        ),
    ];
    rows.extend(storage());
    rows.extend(placing());
    rows.extend(reaching());
    rows.extend(etcd());
    rows.extend(windows());
    rows.extend(in_other_words());
    rows
}

/// What stands for the very same as what was there before.
fn in_other_words() -> Vec<Row> {
    use Kind::Nothing;
    vec![
        row(
            "spec.storage.size",
            Nothing,
            [json!("4096Mi"), json!(4_294_967_296_u64)],
            [],
        ),
        row(
            "spec.resources.requests.cpu",
            Nothing,
            [json!("100m"), json!("0.1")],
            [],
        ),
        row(
            "spec.resources.requests.memory",
            Nothing,
            [json!("256Mi"), json!("0.25Gi")],
            [],
        ),
        row(
            "spec.resources.limits.memory",
            Nothing,
            [json!("2Gi"), json!("2048Mi")],
            [],
        ),
        row(
            "spec.etcd.quota",
            Nothing,
            [json!("3Gi"), json!("3072Mi")],
            [],
        ),
        row(
            "spec.etcd.autoCompaction",
            Nothing,
            [json!("60m"), json!("3600s")],
            [],
        ),
    ]
}

fn storage() -> Vec<Row> {
    use Kind::{Beside, Kept, Moved, Never, Nothing, Rolled};
    vec![
        row(
            "spec.storage.size",
            Rolled,
            [json!("8Gi"), json!("9Gi")],
            [json!("512Mi"), json!("lots")],
        )
        .required()
        .without_a_way_back(),
        row(
            "spec.storage.class",
            Moved,
            [json!("fast"), json!("faster")],
            [json!("")],
        )
        .on(json!({ "storage": { "class": "slow" } }))
        .required(),
        row(
            "spec.storage.onDelete",
            Beside,
            [json!("Delete"), json!("Keep")],
            [json!("Sometimes")],
        ),
        row(
            "spec.storage.keepRemovedFor",
            Nothing,
            [json!("1h"), json!("0")],
            [json!("1d"), json!("")],
        ),
        row(
            "spec.storage.ephemeral",
            Kept,
            [json!(true), json!(false)],
            [json!("yes")],
        ),
        row(
            "spec.resources.requests.cpu",
            Rolled,
            [json!("500m"), json!(1)],
            [json!("0"), json!("-1"), json!("two")],
        ),
        row(
            "spec.resources.requests.memory",
            Rolled,
            [json!("512Mi"), json!("3Gi")],
            [json!("512m"), json!("16Mi"), json!("lots")],
        ),
        row(
            "spec.resources.requests.memory",
            Rolled,
            [json!("512Mi"), json!("1Gi")],
            [json!("2Gi")],
        )
        .on(json!({ "resources": { "limits": { "memory": "1Gi" } } })),
        row(
            "spec.resources.limits.memory",
            Rolled,
            [json!("128Mi"), json!("4Gi")],
            [json!("16Mi"), json!("lots")],
        ),
        row(
            "spec.resources.limits.cpu",
            Never,
            [json!("1"), json!(2)],
            [json!("0")],
        ),
    ]
}

fn placing() -> Vec<Row> {
    use Kind::{Rolled, Scaled};
    let long = "a".repeat(64);
    let tolerations = |one: Value| json!({ "scheduling": { "tolerations": [one] } });
    let noted = || tolerations(json!({ "key": "a", "operator": "Exists", "effect": "NoExecute" }));
    vec![
        row(
            "spec.scheduling.spread.across",
            Rolled,
            [json!("Zone"), json!("Node")],
            [json!("Rack")],
        ),
        row(
            "spec.scheduling.spread.require",
            Rolled,
            [json!(true), json!(false)],
            [json!("yes")],
        ),
        row("spec.members", Scaled, [json!(5), json!(1)], [json!(0)])
            .on(json!({ "scheduling": { "spread": { "require": true } } })),
        row(
            "spec.scheduling.nodeSelector",
            Rolled,
            [json!({ "disk": "ssd" }), json!({ "disk": "nvme" })],
            [
                json!({ "disk": long }),
                json!({ "disk": 1 }),
                json!({ "a disk": "ssd" }),
                json!({ "disk": "an ssd" }),
            ],
        ),
        row(
            "spec.scheduling.tolerations",
            Rolled,
            [
                json!([{ "operator": "Exists" }]),
                json!([{ "key": "a", "value": "b" }]),
            ],
            [json!({ "operator": "Exists" }), json!([{ "taint": "a" }])],
        ),
        row(
            "spec.scheduling.tolerations[].key",
            Rolled,
            [json!("a"), json!("b")],
            [json!(1)],
        )
        .on(tolerations(json!({ "operator": "Exists" }))),
        row(
            "spec.scheduling.tolerations[].operator",
            Rolled,
            [json!("Exists"), json!("Equal")],
            [json!(1), json!("Maybe")],
        )
        .on(tolerations(json!({ "key": "a" }))),
        row(
            "spec.scheduling.tolerations[].value",
            Rolled,
            [json!("x"), json!("y")],
            [json!(true)],
        )
        .on(tolerations(json!({ "key": "a" }))),
        row(
            "spec.scheduling.tolerations[].effect",
            Rolled,
            [json!("NoSchedule"), json!("NoExecute")],
            [json!(1), json!("Never")],
        )
        .on(tolerations(json!({ "key": "a", "operator": "Exists" }))),
        row(
            "spec.scheduling.tolerations[].tolerationSeconds",
            Rolled,
            [json!(60), json!(120)],
            [json!("soon")],
        )
        .on(noted()),
        row(
            "spec.scheduling.priorityClass",
            Rolled,
            [json!("high"), json!("higher")],
            [json!(""), json!("a".repeat(254)), json!("High!")],
        ),
    ]
}

fn reaching() -> Vec<Row> {
    use Kind::Beside;
    let noted = |key: &str, value: &str| json!({ key: value });
    vec![
        row(
            "spec.service.type",
            Beside,
            [json!("NodePort"), json!("LoadBalancer")],
            [json!("ExternalName")],
        ),
        row(
            "spec.service.annotations",
            Beside,
            [noted("a.example/b", "c"), noted("a.example/d", "e")],
            [json!({ "a.example/b": 1 }), json!({ "a b": "c" })],
        ),
        // From one that has some from the start.
        row(
            "spec.service.annotations",
            Beside,
            [noted("a.example/d", "e"), noted("a.example/d", "f")],
            [json!(["a.example/b"])],
        )
        .on(json!({ "service": { "annotations": { "a.example/b": "c" } } })),
        row(
            "spec.tls.client.extraNames",
            Beside,
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

fn etcd() -> Vec<Row> {
    use Kind::Rolled;
    let option = |name: &str, value: &str| json!({ name: value });
    vec![
        row(
            "spec.etcd.quota",
            Rolled,
            [json!("2Gi"), json!("1Gi")],
            [json!("5Gi"), json!("512m"), json!("lots")],
        ),
        row(
            "spec.etcd.autoCompaction",
            Rolled,
            [json!("2h"), json!("0")],
            [json!("1d"), json!("")],
        ),
        row(
            "spec.etcd.options",
            Rolled,
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

fn windows() -> Vec<Row> {
    use Kind::Nothing;
    let some = || json!({ "maintenance": { "windows": [{ "start": "02:00", "duration": "3h" }] } });
    vec![
        row(
            "spec.maintenance.windows",
            Nothing,
            [
                json!([{ "start": "02:00", "duration": "3h" }]),
                json!([{ "start": "03:00", "duration": "1h" }]),
            ],
            [
                json!([{ "start": "02:00" }]),
                json!([{ "start": "02:00", "duration": "3h", "timeZone": "Europe/Atlantis" }]),
            ],
        ),
        row(
            "spec.maintenance.windows[].days",
            Nothing,
            [json!(["Sat"]), json!(["Sun", "Mon"])],
            [json!(["Someday"]), json!(["Sat", "Sat"])],
        )
        .on(some()),
        row(
            "spec.maintenance.windows[].start",
            Nothing,
            [json!("03:00"), json!("23:59")],
            [json!("24:00"), json!("3:00")],
        )
        .on(some())
        .required(),
        row(
            "spec.maintenance.windows[].duration",
            Nothing,
            [json!("10m"), json!("24h")],
            [json!("5m"), json!("25h"), json!("1d")],
        )
        .on(some())
        .required(),
        row(
            "spec.maintenance.windows[].timeZone",
            Nothing,
            [json!("Europe/Berlin"), json!("Asia/Tokyo")],
            [json!("+01:00"), json!("")],
        )
        .on(some()),
    ]
}
