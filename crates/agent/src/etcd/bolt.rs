//! A reader of bbolt files, the storage format of etcd. The reader trusts nothing: every offset, page ID and length is
//! checked, each page is visited at most once, and memory does not depend on the size of the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Visits an element of a page: its flags, its key and its value.
type ElementVisitor<'v> = dyn FnMut(u32, &[u8], &mut BoltValue<'_>) -> Result<(), BoltError> + 'v;

/// The first four bytes of a meta page after its page header.
const MAGIC: u32 = 0xED0C_DAED;
/// The version of the file format.
const VERSION: u32 = 2;
/// The bytes of the header of a page, and of each element of a branch or leaf page.
const HEADER_BYTES: u64 = 16;
/// The bytes of a meta before its checksum.
const META_BYTES: usize = 56;
const BRANCH_FLAG: u16 = 0x01;
const LEAF_FLAG: u16 = 0x02;
const META_FLAG: u16 = 0x04;
const FREELIST_FLAG: u16 = 0x10;
/// The flag of a leaf element whose value is a bucket.
const BUCKET_ELEMENT_FLAG: u32 = 0x01;
/// The ID that stands for "the freelist is not stored". etcd never stores the freelist.
const NO_FREELIST: u64 = u64::MAX;
/// The smallest and largest page size of operating systems.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 1024..=65536;
/// The largest key that bbolt accepts.
const MAX_KEY_BYTES: u64 = 32768;
/// The largest depth of a tree. Pages have at least two children, and usually more than fifty.
const MAX_DEPTH: usize = 48;
/// The largest number of buckets. etcd has eleven.
const MAX_BUCKETS: usize = 256;
/// The bytes that are read at once.
const WINDOW_BYTES: u64 = 16 * 1024;
/// The largest part of a value that can be read at once.
pub const MAX_PART_BYTES: u64 = 64 * 1024;

/// A file that is read at offsets.
pub trait ReadAt {
    /// Fills the buffer from this offset.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

/// An error of the reader.
#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    /// The file cannot be read.
    #[error("failed to read the database file: {0}")]
    Io(#[from] io::Error),
    /// The file is damaged.
    #[error("the database file is damaged at byte {offset}: {problem}")]
    Damaged {
        /// The offset of the damage in the file.
        offset: u64,
        /// The problem.
        problem: &'static str,
    },
}

fn damaged<T>(offset: u64, problem: &'static str) -> Result<T, BoltError> {
    Err(BoltError::Damaged { offset, problem })
}

/// A consumer of the buckets and items of a database.
pub trait BoltVisitor {
    /// Begins a bucket.
    fn begin_bucket(&mut self, name: &[u8]) -> Result<(), BoltError>;

    /// Receives an item of the bucket. Keys are strictly ascending.
    fn visit_item(&mut self, key: &[u8], value: &mut BoltValue<'_>) -> Result<(), BoltError>;
}

/// The value of an item, which is read in parts.
pub struct BoltValue<'a> {
    file: &'a dyn ReadAt,
    window: &'a mut Window,
    file_bytes: u64,
    offset: u64,
    length: u64,
}

impl BoltValue<'_> {
    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns an error for this value.
    pub fn damaged<T>(&self, problem: &'static str) -> Result<T, BoltError> {
        damaged(self.offset, problem)
    }

    /// Returns a part of the value, of at most [`MAX_PART_BYTES`].
    pub fn part(&mut self, start: u64, length: u64) -> Result<&[u8], BoltError> {
        let is_inside = start
            .checked_add(length)
            .is_some_and(|end| end <= self.length);
        if !is_inside || length > MAX_PART_BYTES {
            return damaged(self.offset, "a field exceeds its value");
        }
        self.window
            .bytes(self.file, self.file_bytes, self.offset + start, length)
    }

    /// Calls `each` with consecutive parts of a range of the value.
    pub fn for_each_part(
        &mut self,
        range: &std::ops::Range<u64>,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<(), BoltError> {
        let mut start = range.start;
        while start < range.end {
            let length = (range.end - start).min(MAX_PART_BYTES);
            each(self.part(start, length)?);
            start += length;
        }
        Ok(())
    }
}

/// A part of the file in memory.
#[derive(Default)]
struct Window {
    offset: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns bytes of the file. The caller limits `length`.
    fn bytes(
        &mut self,
        file: &dyn ReadAt,
        file_bytes: u64,
        offset: u64,
        length: u64,
    ) -> Result<&[u8], BoltError> {
        let Some(end) = offset.checked_add(length).filter(|end| *end <= file_bytes) else {
            return damaged(offset, "an offset exceeds the file");
        };
        let loaded_end = self.offset + self.bytes.len() as u64;
        if offset < self.offset || end > loaded_end {
            let start = offset - offset % 4096;
            let load = (end - start).max(WINDOW_BYTES).min(file_bytes - start);
            // The length is at most WINDOW_BYTES or a limited part.
            self.bytes.resize(load as usize, 0);
            self.offset = start;
            if let Err(error) = file.read_exact_at(&mut self.bytes, start) {
                self.bytes.clear();
                return Err(error.into());
            }
        }
        let start = (offset - self.offset) as usize;
        match self.bytes.get(start..start + length as usize) {
            Some(bytes) => Ok(bytes),
            None => damaged(offset, "an offset exceeds the file"),
        }
    }
}

/// A page, or the page inside an inline bucket.
#[derive(Clone, Copy)]
struct Page {
    offset: u64,
    length: u64,
    count: u16,
    is_leaf: bool,
}

/// A position in a tree.
struct Frame {
    page: Page,
    index: u16,
}

/// The place of a key, of its value, and the number that the element carries.
struct Element {
    key: u64,
    key_bytes: u64,
    value: u64,
    value_bytes: u64,
    flags: u32,
    child: u64,
}

/// The root of a bucket.
enum BucketRoot {
    /// A page of the file.
    Page(u64),
    /// A page inside the element's value.
    Inline { offset: u64, length: u64 },
}

/// The order of keys: branch keys bound the keys below them.
#[derive(Default)]
struct KeyOrder {
    last: Vec<u8>,
    is_last_key: bool,
    has_last: bool,
}

impl KeyOrder {
    fn accepts(&mut self, key: &[u8], is_key: bool) -> bool {
        if self.has_last {
            let is_ascending = if self.is_last_key {
                key > self.last.as_slice()
            } else {
                key >= self.last.as_slice()
            };
            if !is_ascending {
                return false;
            }
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        (self.has_last, self.is_last_key) = (true, is_key);
        true
    }
}

/// An open database.
pub struct BoltFile<'a> {
    file: &'a dyn ReadAt,
    /// The bytes that belong to pages.
    file_bytes: u64,
    page_bytes: u64,
    /// The number of pages, including the two metas.
    pages: u64,
    root: u64,
    /// One bit per page that was visited.
    visited: Vec<u64>,
    elements: Window,
    data: Window,
    key: Vec<u8>,
}

impl std::fmt::Debug for BoltFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoltFile")
            .field("pages", &self.pages)
            .field("page_bytes", &self.page_bytes)
            .finish_non_exhaustive()
    }
}

impl<'a> BoltFile<'a> {
    /// Opens a database that begins at offset 0 and has this many bytes. Both meta pages must be valid: a snapshot has two
    /// metas of the same state.
    pub fn open(file: &'a dyn ReadAt, bytes: u64) -> Result<Self, BoltError> {
        let first = Meta::read(file, bytes, 0)?;
        let second = Meta::read(file, bytes, u64::from(first.page_bytes))?;
        if first.page_bytes != second.page_bytes {
            return damaged(
                u64::from(first.page_bytes),
                "the meta pages differ in page size",
            );
        }
        let meta = if second.transaction > first.transaction {
            second
        } else {
            first
        };
        let page_bytes = u64::from(meta.page_bytes);
        if meta.pages < 3 || meta.pages > bytes / page_bytes {
            return damaged(0, "the meta page counts more pages than the file has");
        }
        let mut database = Self {
            file,
            file_bytes: meta.pages * page_bytes,
            page_bytes,
            pages: meta.pages,
            root: meta.root,
            visited: vec![0; (meta.pages / 64 + 1) as usize],
            elements: Window::default(),
            data: Window::default(),
            key: Vec::new(),
        };
        database.mark(0, 1, 0)?;
        if meta.freelist != NO_FREELIST {
            database.check_freelist(meta.freelist)?;
        }
        Ok(database)
    }

    /// Visits all buckets and items: the named bucket first, then the others in the order of their names.
    pub fn walk(mut self, first: &[u8], visitor: &mut dyn BoltVisitor) -> Result<(), BoltError> {
        let root = self.page(self.root)?;
        let mut buckets: Vec<(Vec<u8>, BucketRoot)> = Vec::new();
        self.walk_tree(root, &mut |flags, key, value| {
            if flags & BUCKET_ELEMENT_FLAG == 0 {
                return value.damaged("the root contains an item that is not a bucket");
            }
            if buckets.len() == MAX_BUCKETS {
                return value.damaged("the database has too many buckets");
            }
            let page = number(value.part(0, 16)?, 0);
            let bucket = match page {
                0 => BucketRoot::Inline {
                    offset: value.offset + 16,
                    length: value.length - 16,
                },
                page => BucketRoot::Page(page),
            };
            buckets.push((key.to_vec(), bucket));
            Ok(())
        })?;
        buckets.sort_by_key(|(name, _)| name != first);
        for (name, bucket) in buckets {
            visitor.begin_bucket(&name)?;
            let root = match bucket {
                BucketRoot::Page(id) => self.page(id)?,
                BucketRoot::Inline { offset, length } => self.inline_page(offset, length)?,
            };
            self.walk_tree(root, &mut |flags, key, value| {
                if flags != 0 {
                    return value.damaged("a bucket contains an item with unknown flags");
                }
                visitor.visit_item(key, value)
            })?;
        }
        Ok(())
    }

    fn walk_tree(&mut self, root: Page, each: &mut ElementVisitor<'_>) -> Result<(), BoltError> {
        let mut order = KeyOrder::default();
        let mut key = std::mem::take(&mut self.key);
        let mut stack = vec![Frame {
            page: root,
            index: 0,
        }];
        while let Some(frame) = stack.last_mut() {
            let (page, index) = (frame.page, frame.index);
            if index == page.count {
                stack.pop();
                continue;
            }
            frame.index += 1;
            let element = self.element(page, index)?;
            let bytes =
                self.data
                    .bytes(self.file, self.file_bytes, element.key, element.key_bytes)?;
            key.clear();
            key.extend_from_slice(bytes);
            if !order.accepts(&key, page.is_leaf) {
                return damaged(element.key, "keys are not in ascending order");
            }
            if page.is_leaf {
                let mut value = BoltValue {
                    file: self.file,
                    window: &mut self.data,
                    file_bytes: self.file_bytes,
                    offset: element.value,
                    length: element.value_bytes,
                };
                each(element.flags, &key, &mut value)?;
            } else {
                if stack.len() == MAX_DEPTH {
                    return damaged(page.offset, "the tree is too deep");
                }
                let child = self.page(element.child)?;
                if child.count == 0 {
                    return damaged(child.offset, "a page below a branch is empty");
                }
                stack.push(Frame {
                    page: child,
                    index: 0,
                });
            }
        }
        self.key = key;
        Ok(())
    }

    /// Reads an element of a branch or leaf page.
    fn element(&mut self, page: Page, index: u16) -> Result<Element, BoltError> {
        let array_end = HEADER_BYTES * (1 + u64::from(page.count));
        let start = HEADER_BYTES * (1 + u64::from(index));
        if array_end > page.length {
            return damaged(page.offset, "a page has more elements than fit");
        }
        let at = page.offset + start;
        let bytes = self
            .elements
            .bytes(self.file, self.file_bytes, at, HEADER_BYTES)?;
        let (flags, position, key_bytes, value_bytes, child) = if page.is_leaf {
            let flags = small(bytes, 0);
            (flags, small(bytes, 4), small(bytes, 8), small(bytes, 12), 0)
        } else {
            (0, small(bytes, 0), small(bytes, 4), 0, number(bytes, 8))
        };
        let (key_bytes, value_bytes) = (u64::from(key_bytes), u64::from(value_bytes));
        let key = start + u64::from(position);
        if key < array_end || key + key_bytes + value_bytes > page.length {
            return damaged(at, "an element exceeds its page");
        }
        if key_bytes > MAX_KEY_BYTES {
            return damaged(at, "a key is too long");
        }
        Ok(Element {
            key: page.offset + key,
            key_bytes,
            value: page.offset + key + key_bytes,
            value_bytes,
            flags,
            child,
        })
    }

    /// Reads the header of a page and marks the page as visited.
    fn page(&mut self, id: u64) -> Result<Page, BoltError> {
        let (header, offset) = self.header(id)?;
        let is_leaf = match header.flags {
            LEAF_FLAG => true,
            BRANCH_FLAG => false,
            _ => return damaged(offset, "a page is neither a branch nor a leaf"),
        };
        if !is_leaf && header.count == 0 {
            return damaged(offset, "a branch page is empty");
        }
        Ok(Page {
            offset,
            length: self.page_bytes * (1 + u64::from(header.overflow)),
            count: header.count,
            is_leaf,
        })
    }

    fn header(&mut self, id: u64) -> Result<(Header, u64), BoltError> {
        if id < 2 || id >= self.pages {
            return damaged(0, "a page ID exceeds the file");
        }
        let offset = id * self.page_bytes;
        let bytes = self
            .elements
            .bytes(self.file, self.file_bytes, offset, HEADER_BYTES)?;
        let header = Header::parse(bytes);
        if header.id != id {
            return damaged(offset, "a page has the ID of another page");
        }
        self.mark(id, u64::from(header.overflow), offset)?;
        Ok((header, offset))
    }

    fn inline_page(&mut self, offset: u64, length: u64) -> Result<Page, BoltError> {
        if length < HEADER_BYTES {
            return damaged(offset, "an inline bucket is too short");
        }
        let bytes = self
            .elements
            .bytes(self.file, self.file_bytes, offset, HEADER_BYTES)?;
        let header = Header::parse(bytes);
        if header.flags != LEAF_FLAG || header.overflow != 0 {
            return damaged(offset, "an inline bucket is not a leaf");
        }
        Ok(Page {
            offset,
            length,
            count: header.count,
            is_leaf: true,
        })
    }

    fn check_freelist(&mut self, id: u64) -> Result<(), BoltError> {
        let (header, offset) = self.header(id)?;
        if header.flags != FREELIST_FLAG {
            return damaged(offset, "the freelist has the flags of another page");
        }
        Ok(())
    }

    /// Marks a page and the pages that continue it. A page that is marked twice is part of a cycle or of two trees.
    fn mark(&mut self, id: u64, overflow: u64, offset: u64) -> Result<(), BoltError> {
        if id + overflow >= self.pages {
            return damaged(offset, "a page continues beyond the end of the file");
        }
        for id in id..=id + overflow {
            let bit = 1 << (id % 64);
            match self.visited.get_mut((id / 64) as usize) {
                Some(word) if *word & bit == 0 => *word |= bit,
                Some(_) => return damaged(offset, "a page is used twice"),
                None => return damaged(offset, "a page ID exceeds the file"),
            }
        }
        Ok(())
    }
}

/// The header of a page.
struct Header {
    id: u64,
    flags: u16,
    count: u16,
    overflow: u32,
}

impl Header {
    /// Parses 16 bytes.
    fn parse(bytes: &[u8]) -> Self {
        let flags_and_count = small(bytes, 8);
        Self {
            id: number(bytes, 0),
            flags: (flags_and_count & 0xFFFF) as u16,
            count: (flags_and_count >> 16) as u16,
            overflow: small(bytes, 12),
        }
    }
}

/// A meta page.
struct Meta {
    page_bytes: u32,
    root: u64,
    freelist: u64,
    pages: u64,
    transaction: u64,
}

impl Meta {
    fn read(file: &dyn ReadAt, file_bytes: u64, offset: u64) -> Result<Self, BoltError> {
        let mut bytes = [0; HEADER_BYTES as usize + META_BYTES + 8];
        if offset + bytes.len() as u64 > file_bytes {
            return damaged(offset, "the file is too short for a meta page");
        }
        file.read_exact_at(&mut bytes, offset)?;
        let (header, meta) = bytes.split_at(HEADER_BYTES as usize);
        let (content, checksum) = meta.split_at(META_BYTES);
        if fnv1a(content) != number(checksum, 0) {
            return damaged(offset, "the checksum of a meta page is wrong");
        }
        if small(content, 0) != MAGIC {
            return damaged(offset, "the file is not a bbolt database");
        }
        if small(content, 4) != VERSION {
            return damaged(offset, "the version of the bbolt format is unknown");
        }
        let page_bytes = small(content, 8);
        if !PAGE_SIZES.contains(&page_bytes) || !page_bytes.is_power_of_two() {
            return damaged(offset, "the page size is invalid");
        }
        let header = Header::parse(header);
        let id = offset / u64::from(page_bytes);
        if header.flags != META_FLAG || header.id != id {
            return damaged(offset, "a meta page has the header of another page");
        }
        Ok(Self {
            page_bytes,
            root: number(content, 16),
            freelist: number(content, 32),
            pages: number(content, 40),
            transaction: number(content, 48),
        })
    }
}

/// Returns the 64-bit FNV-1a hash.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Returns the little-endian number of four bytes; missing bytes count as zero.
fn small(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.iter().skip(at).take(4).rev();
    bytes.fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Returns the little-endian number of eight bytes; missing bytes count as zero.
fn number(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.iter().skip(at).take(8).rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
#[path = "bolt_tests.rs"]
mod tests;
