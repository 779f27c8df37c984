//! The CRC-32C that `etcdutl snapshot status` prints: over the names of all buckets and all their items.

use std::fs::File;

use evenkeel_agent::etcd::bolt::{BoltError, BoltFile, BoltValue, BoltVisitor};

/// Returns the hash of a snapshot file, whose last 32 bytes are not part of the database.
pub(crate) fn hash_of_all_buckets(file: &File) -> u32 {
    let size = file.metadata().unwrap().len() - 32;
    let mut hash = Crc(u32::MAX);
    BoltFile::open(file, size)
        .unwrap()
        .walk(b"", &mut hash)
        .unwrap();
    !hash.0
}

struct Crc(u32);

impl Crc {
    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 ^= u32::from(*byte);
            for _ in 0..8 {
                let is_odd = self.0 & 1 == 1;
                self.0 >>= 1;
                if is_odd {
                    self.0 ^= 0x82F6_3B78;
                }
            }
        }
    }
}

impl BoltVisitor for Crc {
    fn begin_bucket(&mut self, name: &[u8]) -> Result<(), BoltError> {
        self.update(name);
        Ok(())
    }

    fn visit_item(&mut self, key: &[u8], value: &mut BoltValue<'_>) -> Result<(), BoltError> {
        self.update(key);
        let range = 0..value.length();
        value.for_each_part(&range, &mut |part| self.update(part))
    }
}

#[test]
fn the_checksum_of_the_standard_text_is_known() {
    let mut crc = Crc(u32::MAX);
    crc.update(b"123456789");
    assert_eq!(!crc.0, 0xE306_9283);
}
