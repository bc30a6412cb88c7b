//! Sealed memory: it takes no more writes, from this process or another, so a check of its bytes holds for as long as they
//! are used, and they may be mapped.
//!
//! A mapped file is different. A handle that was open for writing before the check, under any mode that the folder has
//! now, changes pages of the mapping after it, and with them code that runs.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::PathBuf;

/// A sealed copy of a part of a file.
#[derive(Debug)]
pub(super) struct SealedCopy(File);

impl SealedCopy {
    /// Copies what is left of `source`, which the kernel does where it can, and seals the copy.
    ///
    /// # Errors
    /// This system has no memory that can be sealed, or no more of it.
    #[cfg(target_os = "linux")]
    pub fn of(source: &mut io::Take<&File>) -> io::Result<Self> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        use rustix::io::Errno;

        const NAME: &str = "toolhold-compiled";
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // No program can be started from it, and it can still be mapped as code. With `vm.memfd_noexec=2`, systems
        // make no other memory of this kind.
        let made = match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
            // Linux before 6.3 does not know the flag.
            Err(Errno::INVAL) => memfd_create(NAME, flags),
            made => made,
        };
        let mut copy = File::from(made?);
        io::copy(source, &mut copy)?;
        let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        fcntl_add_seals(&copy, all)?;
        Ok(Self(copy))
    }

    /// # Errors
    /// Always: this system has no memory that can be sealed.
    #[cfg(not(target_os = "linux"))]
    pub fn of(_: &mut io::Take<&File>) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Number of bytes.
    ///
    /// # Errors
    /// What the system says.
    pub fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// Reads the bytes from the beginning. One reader at a time: all have the same place in the copy.
    ///
    /// # Errors
    /// What the system says.
    pub fn reader(&self) -> io::Result<&File> {
        let mut copy = &self.0;
        copy.rewind()?;
        Ok(copy)
    }

    /// The path by which this process opens the copy, for as long as it has it. Absent where `/proc` is not the kernel's:
    /// the path would lead to another file.
    #[cfg(target_os = "linux")]
    pub fn path(&self) -> Option<PathBuf> {
        use rustix::fs::{PROC_SUPER_MAGIC, statfs};
        use std::os::fd::AsRawFd as _;

        const OPEN_FILES: &str = "/proc/self/fd";
        let is_kernels = statfs(OPEN_FILES).is_ok_and(|it| it.f_type == PROC_SUPER_MAGIC);
        is_kernels.then(|| PathBuf::from(format!("{OPEN_FILES}/{}", self.0.as_raw_fd())))
    }

    #[cfg(not(target_os = "linux"))]
    pub fn path(&self) -> Option<PathBuf> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_get_seals, memfd_create};
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_sealed_copy_has_the_bytes_and_takes_no_others() {
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(b"head: held and more").unwrap();
        let mut from = &source;
        from.rewind().unwrap();
        from.read_exact(&mut [0; 6]).unwrap();
        let copy = SealedCopy::of(&mut from.take(4)).unwrap();
        // Whatever becomes of the file that it was copied from.
        source.write_all_at(b"changed", 0).unwrap();
        for _ in 0..2 {
            let mut held = String::new();
            copy.reader().unwrap().read_to_string(&mut held).unwrap();
            assert_eq!((held.as_str(), copy.length().unwrap()), ("held", 4));
        }

        let path = copy.path().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"held");
        // By no handle: neither the one that wrote it nor a new one.
        copy.0.write_all_at(b"x", 0).unwrap_err();
        copy.0.set_len(3).unwrap_err();
        let other = File::options().write(true).open(&path).unwrap();
        other.write_all_at(b"x", 0).unwrap_err();
        // For ever, and, where the system knows the flag, without the right to start it as a program.
        let seals = fcntl_get_seals(&copy.0).unwrap();
        let lasting = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        assert!(seals.contains(lasting), "{seals:?}");
        let knows_the_flag = memfd_create("known", MemfdFlags::NOEXEC_SEAL).is_ok();
        assert_eq!(seals.contains(SealFlags::EXEC), knows_the_flag, "{seals:?}");
    }
}
