//! Opens files and directories whose names others may exchange at any moment (`docs/security.md`, "Names and
//! handles").
//!
//! A name that was checked may mean something else when it is opened. So a name is opened first, in a way that
//! neither waits nor follows what it must not follow, and what was opened is checked. [`read`] and its like give the
//! content of a regular file; [`Directory`] stays open, and all that is in it is reached through it. What is made for a
//! while has a random name ([`temporary_name`] and its like), and takes nothing that is there. A [`LivenessFile`] shows that its
//! process lives. A file that several processes change is changed under a [`FolderLock`]. A [`FileStamp`] tells
//! whether a file changed. [`ProcessFolder`] and [`DiskSpace`] say what a process uses and what is free on a disk.
//! [`archive`] has the form of a backup's file.

pub mod archive;

mod directory;
mod folder_lock;
mod liveness;
mod process;
mod regular;
mod stamp;
mod temporary;

pub use directory::{Directory, EntryId, Location, Lookup, Resolution, open_folder, passes};
pub use folder_lock::{FileReaders, FolderLock, UnfinishedFile};
pub use liveness::{LivenessFile, lives, living, lock_path};
pub use process::{DiskSpace, ProcessFolder, descriptor_limit};
pub use regular::{Links, ReadError, open, open_in, read, read_in, read_text, read_to_end};
pub use stamp::FileStamp;
pub use temporary::{replace, replace_in, temporary_folder, temporary_name};
