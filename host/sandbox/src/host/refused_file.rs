//! Notes what a guest was not permitted to do with files, for the author (`denial_log`).

use super::files::Fd;
use crate::call::CallState;
use crate::denial_log::FileUse;
use crate::grant::Reservation;
use std::sync::Arc;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

impl CallState {
    /// Notes a use of `path` below the descriptor of this number that was not permitted: by its grant, or by the
    /// operating system, which has the same code for what only a file's owner may do (EPERM).
    pub(super) fn noted<T>(
        &self,
        fd: u32,
        path: Option<&str>,
        wish: FileUse,
        done: Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        if let Err(ErrorCode::NotPermitted) = done {
            let fd = Fd::new_borrow(fd);
            let guest = self.guest_path(&fd);
            self.denials.file(wish, path, guest, self.is_read_only(&fd));
        }
        done
    }

    /// Notes a change of an entry that is reserved for this host. Returns the guest's error.
    pub(super) fn reserved_for_host(
        &self,
        fd: &Fd,
        path: &str,
        reservation: &Reservation,
    ) -> ErrorCode {
        let guest = self.guest_path(fd);
        self.denials.reserved(path, guest, reservation.what());
        ErrorCode::NotPermitted
    }

    /// The granted directory that `fd` belongs to, as the guest sees it.
    fn guest_path(&self, fd: &Fd) -> &str {
        let root = self.files.file(fd).map(|file| &file.root);
        let mut granted = self.granted.directories.iter();
        let of = granted.find(|(dir, _)| root.is_some_and(|root| Arc::ptr_eq(root, &dir.dir)));
        of.map_or("its directory", |(_, guest)| guest)
    }

    /// Of two places that an entry is moved or linked between, the one that may be read only, or else the first.
    pub(super) fn refusing(&self, from: (&Fd, &str), to: (&Fd, &str)) -> (u32, String) {
        let (fd, path) = if self.is_read_only(to.0) { to } else { from };
        (fd.rep(), path.to_owned())
    }

    fn is_read_only(&self, fd: &Fd) -> bool {
        let perms = self.table.get(fd).map(|descriptor| match descriptor {
            Descriptor::File(file) => file.perms,
            Descriptor::Dir(directory) => directory.perms,
        });
        perms.is_ok_and(|perms| perms.write_not_permitted())
    }
}
