use std::sync::LazyLock;

use proptest::prelude::*;

use super::super::testing::{Builder, Items, PAGE, etcd, put};
use super::*;

/// All buckets and items of a database.
#[derive(Default, Debug, PartialEq)]
struct All(Vec<(String, Items)>);

impl BoltVisitor for All {
    fn begin_bucket(&mut self, name: &[u8]) -> Result<(), BoltError> {
        let name = String::from_utf8_lossy(name).into_owned();
        self.0.push((name, Items::new()));
        Ok(())
    }

    fn visit_item(&mut self, key: &[u8], value: &mut BoltValue<'_>) -> Result<(), BoltError> {
        let mut bytes = Vec::new();
        let range = 0..value.length();
        value.for_each_part(&range, &mut |part| bytes.extend_from_slice(part))?;
        self.0.last_mut().unwrap().1.push((key.to_vec(), bytes));
        Ok(())
    }
}

fn walk(file: &Vec<u8>) -> Result<All, BoltError> {
    let mut all = All::default();
    BoltFile::open(file, file.len() as u64)?.walk(b"meta", &mut all)?;
    Ok(all)
}

fn problem(file: &Vec<u8>) -> &'static str {
    match walk(file) {
        Err(BoltError::Damaged { problem, .. }) => problem,
        Err(BoltError::Io(error)) => panic!("{error}"),
        Ok(all) => panic!("{all:?}"),
    }
}

fn item(key: &str, length: usize) -> (Vec<u8>, Vec<u8>) {
    (
        key.as_bytes().to_vec(),
        key.bytes().cycle().take(length).collect(),
    )
}

/// The bytes of a database, and its buckets.
type Sample = (Vec<u8>, Vec<(String, Items)>);

/// A database with inline buckets, trees of two levels and values that exceed pages.
fn sample() -> Sample {
    static SAMPLE: LazyLock<Sample> = LazyLock::new(build_sample);
    SAMPLE.clone()
}

fn build_sample() -> Sample {
    let tree: Items = (0..40)
        .map(|index| item(&format!("k{index:03}"), 700))
        .collect();
    let large = vec![item("a", 10_000), item("b", 1), item("c", 70_000)];
    let small = vec![item("x", 0), item("y", 20)];
    let mut builder = Builder::new();
    builder.tree_bucket("tree", &tree, 4);
    let root = builder.leaf(&large);
    builder.bucket("large", root);
    builder.inline_bucket("meta", &small);
    builder.inline_bucket("empty", &Items::new());
    let expected = vec![
        ("meta".to_owned(), small),
        ("empty".to_owned(), Items::new()),
        ("large".to_owned(), large),
        ("tree".to_owned(), tree),
    ];
    (builder.finish(), expected)
}

#[test]
fn all_buckets_and_items_are_visited() {
    let (file, expected) = sample();
    assert_eq!(walk(&file).unwrap().0, expected);
}

#[test]
fn damaged_metas_are_found() {
    let (good, _) = sample();
    for at in (16..80).chain(PAGE + 16..PAGE + 80) {
        let mut file = good.clone();
        file[at] ^= 0x10;
        assert_eq!(
            problem(&file),
            "the checksum of a meta page is wrong",
            "byte {at}"
        );
    }
    for at in [0, 8, PAGE, PAGE + 8] {
        let mut file = good.clone();
        file[at] ^= 0x10;
        assert_eq!(problem(&file), "a meta page has the header of another page");
    }
}

#[test]
fn every_cut_of_the_file_is_found() {
    let (good, _) = sample();
    for length in (0..good.len()).step_by(509) {
        assert!(walk(&good[..length].to_vec()).is_err(), "{length} bytes");
    }
}

#[test]
fn a_cycle_is_found() {
    let mut builder = Builder::new();
    let id = builder.next_id();
    builder.branch(&[(b"a".to_vec(), id)]);
    builder.bucket("key", id);
    assert_eq!(problem(&builder.finish()), "a page is used twice");
}

#[test]
fn a_page_of_two_buckets_is_found() {
    let mut builder = Builder::new();
    let leaf = builder.leaf(&vec![item("a", 1)]);
    builder.bucket("key", leaf);
    builder.bucket("lease", leaf);
    assert_eq!(problem(&builder.finish()), "a page is used twice");
}

#[test]
fn a_deep_chain_of_branches_is_found() {
    let mut builder = Builder::new();
    let mut id = builder.leaf(&vec![item("a", 1)]);
    for _ in 0..100 {
        id = builder.branch(&[(b"a".to_vec(), id)]);
    }
    builder.bucket("key", id);
    assert_eq!(problem(&builder.finish()), "the tree is too deep");
}

#[test]
fn keys_out_of_order_are_found() {
    let in_leaf = |builder: &mut Builder| builder.leaf(&vec![item("b", 1), item("a", 1)]);
    let twice = |builder: &mut Builder| builder.leaf(&vec![item("a", 1), item("a", 1)]);
    let below_branch = |builder: &mut Builder| {
        let leaf = builder.leaf(&vec![item("a", 1)]);
        builder.branch(&[(b"b".to_vec(), leaf)])
    };
    let above_branch = |builder: &mut Builder| {
        let first = builder.leaf(&vec![item("a", 1), item("m", 1)]);
        let second = builder.leaf(&vec![item("n", 1)]);
        builder.branch(&[(b"a".to_vec(), first), (b"l".to_vec(), second)])
    };
    for build in [
        &in_leaf as &dyn Fn(&mut Builder) -> u64,
        &twice,
        &below_branch,
        &above_branch,
    ] {
        let mut builder = Builder::new();
        let root = build(&mut builder);
        builder.bucket("key", root);
        assert_eq!(
            problem(&builder.finish()),
            "keys are not in ascending order"
        );
    }
}

#[test]
fn wrong_flags_and_page_ids_are_found() {
    for (flags, expected) in [
        (0, "a page is neither a branch nor a leaf"),
        (4, "a page is neither a branch nor a leaf"),
        (0x10, "a page is neither a branch nor a leaf"),
        (1, "a branch page is empty"),
    ] {
        let mut builder = Builder::new();
        let root = builder.page(flags, 0, &[]);
        builder.bucket("key", root);
        assert_eq!(problem(&builder.finish()), expected);
    }
    for root in [1, 5, u64::MAX] {
        let mut builder = Builder::new();
        builder.bucket("key", root);
        assert_eq!(problem(&builder.finish()), "a page ID exceeds the file");
    }
    let mut builder = Builder::new();
    let root = builder.leaf(&vec![item("a", 1)]);
    builder.bucket("key", root);
    builder.bytes[root as usize * PAGE] ^= 1;
    assert_eq!(
        problem(&builder.finish()),
        "a page has the ID of another page"
    );
}

#[test]
fn elements_and_overflow_beyond_their_bounds_are_found() {
    let at = 16;
    for (offset, expected) in [
        (at + 7, "an element exceeds its page"),
        (at + 11, "an element exceeds its page"),
        (at + 15, "an element exceeds its page"),
        (11, "a page has more elements than fit"),
        (15, "a page continues beyond the end of the file"),
    ] {
        let mut builder = Builder::new();
        let root = builder.leaf(&vec![item("a", 1)]);
        builder.bucket("key", root);
        builder.bytes[root as usize * PAGE + offset] = 0x70;
        assert_eq!(problem(&builder.finish()), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A walk over damaged pages ends with a result, and never yields more than a few times the items.
    #[test]
    fn damaged_pages_neither_panic_nor_loop(
        damage in prop::collection::vec((2 * PAGE..40 * PAGE, any::<u8>()), 1..20),
        cut in prop::option::of(0_usize..50 * PAGE),
    ) {
        let (mut file, expected) = sample();
        for (at, byte) in damage {
            let length = file.len();
            file[at % length] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.max(1));
        }
        if let Ok(all) = walk(&file) {
            let count = |buckets: &[(String, Items)]| buckets.iter().map(|(_, items)| items.len()).sum::<usize>();
            prop_assert!(count(&all.0) <= count(&expected) + 65536);
        }
    }

    /// Headers and elements are the parts that a walk follows: they are damaged more often than by chance.
    #[test]
    fn damaged_headers_neither_panic_nor_loop(
        damage in prop::collection::vec((2_usize..40, 0_usize..96, any::<u8>()), 1..8),
    ) {
        let (mut file, _) = sample();
        for (page, at, byte) in damage {
            let at = (page * PAGE + at) % file.len();
            file[at] = byte;
        }
        let _ = walk(&file);
    }

    /// Damaged records of etcd are errors or other contents, never a panic.
    #[test]
    fn damaged_records_do_not_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..10),
    ) {
        let records: Items = (2..20).map(|main| put(main, &format!("key{main}"), 1, b"value")).collect();
        let mut file = etcd(&records, &Items::new());
        for (index, byte) in damage {
            let at = 2 * PAGE + index.index(file.len() - 2 * PAGE);
            file[at] = byte;
        }
        let _ = super::super::contents::SnapshotContents::read(&file, file.len() as u64);
    }
}
