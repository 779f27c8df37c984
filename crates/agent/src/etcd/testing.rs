//! Databases for tests, page by page.

use std::io;

use super::bolt::ReadAt;

pub(crate) const PAGE: usize = 4096;

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = self.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

pub(crate) type Items = Vec<(Vec<u8>, Vec<u8>)>;

/// A database that is being built. Pages 0 and 1 are the metas.
pub(crate) struct Builder {
    pub(crate) bytes: Vec<u8>,
    buckets: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; 2 * PAGE],
            buckets: Vec::new(),
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        (self.bytes.len() / PAGE) as u64
    }

    /// Appends a page, with as many pages of overflow as needed. Returns its ID.
    pub(crate) fn page(&mut self, flags: u16, count: usize, content: &[u8]) -> u64 {
        let id = self.next_id();
        let pages = (16 + content.len()).div_ceil(PAGE);
        let mut page = header(id, flags, count, pages as u32 - 1);
        page.extend_from_slice(content);
        page.resize(pages * PAGE, 0);
        self.bytes.extend(page);
        id
    }

    pub(crate) fn leaf(&mut self, items: &Items) -> u64 {
        self.page(2, items.len(), &leaf_content(items, 0))
    }

    pub(crate) fn branch(&mut self, children: &[(Vec<u8>, u64)]) -> u64 {
        let (mut elements, mut data) = (Vec::new(), Vec::new());
        for (index, (key, id)) in children.iter().enumerate() {
            let position = 16 * (children.len() - index) + data.len();
            elements.extend((position as u32).to_le_bytes());
            elements.extend((key.len() as u32).to_le_bytes());
            elements.extend(id.to_le_bytes());
            data.extend_from_slice(key);
        }
        elements.extend(data);
        self.page(1, children.len(), &elements)
    }

    /// Adds a bucket whose root is this page.
    pub(crate) fn bucket(&mut self, name: &str, root: u64) {
        let mut value = root.to_le_bytes().to_vec();
        value.extend([0; 8]);
        self.buckets.push((name.as_bytes().to_vec(), value));
    }

    /// Adds a bucket inside the root page.
    pub(crate) fn inline_bucket(&mut self, name: &str, items: &Items) {
        let mut value = vec![0; 16];
        value.extend(header(0, 2, items.len(), 0));
        value.extend(leaf_content(items, 0));
        self.buckets.push((name.as_bytes().to_vec(), value));
    }

    /// Adds a bucket of records with several leaves and a branch.
    pub(crate) fn tree_bucket(&mut self, name: &str, items: &Items, per_leaf: usize) {
        let children: Vec<_> = items
            .chunks(per_leaf)
            .map(|chunk| (chunk[0].0.clone(), self.leaf(&chunk.to_vec())))
            .collect();
        let root = self.branch(&children);
        self.bucket(name, root);
    }

    /// Writes the root and the metas.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.buckets.sort();
        let buckets = std::mem::take(&mut self.buckets);
        let content = leaf_content(&buckets, 1);
        let root = self.page(2, buckets.len(), &content);
        let pages = self.next_id();
        for id in [0, 1] {
            let mut page = header(id, 4, 0, 0);
            let mut meta = Vec::new();
            meta.extend(0xED0C_DAED_u32.to_le_bytes());
            meta.extend(2_u32.to_le_bytes());
            meta.extend((PAGE as u32).to_le_bytes());
            meta.extend(0_u32.to_le_bytes());
            for number in [root, 0, u64::MAX, pages, 7 - id] {
                meta.extend(number.to_le_bytes());
            }
            let checksum = super::bolt::fnv1a(&meta);
            meta.extend(checksum.to_le_bytes());
            page.extend(meta);
            let start = id as usize * PAGE;
            self.bytes[start..start + page.len()].copy_from_slice(&page);
        }
        self.bytes
    }
}

fn header(id: u64, flags: u16, count: usize, overflow: u32) -> Vec<u8> {
    let mut header = id.to_le_bytes().to_vec();
    header.extend(flags.to_le_bytes());
    header.extend((count as u16).to_le_bytes());
    header.extend(overflow.to_le_bytes());
    header
}

fn leaf_content(items: &Items, flags: u32) -> Vec<u8> {
    let (mut elements, mut data) = (Vec::new(), Vec::new());
    for (index, (key, value)) in items.iter().enumerate() {
        let position = 16 * (items.len() - index) + data.len();
        for number in [flags, position as u32, key.len() as u32, value.len() as u32] {
            elements.extend(number.to_le_bytes());
        }
        data.extend_from_slice(key);
        data.extend_from_slice(value);
    }
    elements.extend(data);
    elements
}

/// Returns the key of a record.
pub(crate) fn revision(main: i64, sub: i64) -> Vec<u8> {
    let mut bytes = main.to_be_bytes().to_vec();
    bytes.push(b'_');
    bytes.extend(sub.to_be_bytes());
    bytes
}

fn field(number: u8, value: i64) -> Vec<u8> {
    let mut bytes = vec![number << 3];
    let mut rest = value.cast_unsigned();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn bytes_field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = field(number, value.len() as i64);
    bytes[0] |= 2;
    bytes.extend_from_slice(value);
    bytes
}

/// Returns the record of a put.
pub(crate) fn put(main: i64, key: &str, version: i64, value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut record = bytes_field(1, key.as_bytes());
    record.extend(field(2, main - version + 1));
    record.extend(field(3, main));
    record.extend(field(4, version));
    record.extend(bytes_field(5, value));
    (revision(main, 0), record)
}

/// Returns the record of a deletion.
pub(crate) fn delete(main: i64, key: &str) -> (Vec<u8>, Vec<u8>) {
    let mut revision = revision(main, 0);
    revision.push(b't');
    (revision, bytes_field(1, key.as_bytes()))
}

/// Returns a database of etcd with these records and this finished compaction.
pub(crate) fn etcd(records: &Items, meta: &Items) -> Vec<u8> {
    let mut builder = Builder::new();
    builder.tree_bucket("key", records, 3);
    builder.inline_bucket("meta", meta);
    builder.inline_bucket("lease", &vec![(vec![0; 8], vec![1])]);
    builder.inline_bucket("authUsers", &vec![(b"root".to_vec(), vec![1])]);
    builder.inline_bucket("members", &Items::new());
    builder.finish()
}
