//! Files by the raw interface: what the host hands out, asked for as rudely as it allows.

use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{
    Descriptor, DescriptorFlags, ErrorCode, NewTimestamp, OpenFlags, PathFlags,
};

/// As much as is read of a file.
const CHUNK: u64 = 4 << 10;

pub fn preopens() -> Vec<String> {
    get_directories()
        .into_iter()
        .map(|(_, path)| path)
        .collect()
}

pub fn read(dir: &str, path: &str, follow: bool) -> Result<String, String> {
    let flags = if follow {
        PathFlags::SYMLINK_FOLLOW
    } else {
        PathFlags::empty()
    };
    read_from(&granted(dir)?, flags, path)
}

pub fn through(dir: &str, path: &str, then: &str) -> Result<String, String> {
    let directory = granted(dir)?
        .open_at(
            PathFlags::SYMLINK_FOLLOW,
            path,
            OpenFlags::DIRECTORY,
            DescriptorFlags::READ,
        )
        .map_err(said)?;
    read_from(&directory, PathFlags::SYMLINK_FOLLOW, then)
}

fn read_from(dir: &Descriptor, flags: PathFlags, path: &str) -> Result<String, String> {
    let file = dir
        .open_at(flags, path, OpenFlags::empty(), DescriptorFlags::READ)
        .map_err(said)?;
    let (bytes, _) = file.read(CHUNK, 0).map_err(said)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub fn write(dir: &str, path: &str, content: &str, create: bool) -> Result<(), String> {
    let flags = if create {
        OpenFlags::CREATE | OpenFlags::TRUNCATE
    } else {
        OpenFlags::empty()
    };
    let file = granted(dir)?
        .open_at(
            PathFlags::SYMLINK_FOLLOW,
            path,
            flags,
            DescriptorFlags::READ | DescriptorFlags::WRITE,
        )
        .map_err(said)?;
    file.write(content.as_bytes(), 0).map_err(said).map(drop)
}

pub fn fill(dir: &str, path: &str, chunk: u32, chunks: u32) -> Result<u64, String> {
    let file = granted(dir)?
        .open_at(
            PathFlags::empty(),
            path,
            OpenFlags::CREATE,
            DescriptorFlags::READ | DescriptorFlags::WRITE,
        )
        .map_err(said)?;
    let bytes = vec![b'x'; chunk as usize];
    let mut written = 0;
    for _ in 0..chunks {
        written += file.write(&bytes, written).map_err(said)?;
    }
    Ok(written)
}

pub fn write_at(dir: &str, path: &str, offset: u64, by_stream: bool) -> Result<(), String> {
    let file = granted(dir)?
        .open_at(
            PathFlags::empty(),
            path,
            OpenFlags::CREATE,
            DescriptorFlags::READ | DescriptorFlags::WRITE,
        )
        .map_err(said)?;
    if by_stream {
        let stream = file.write_via_stream(offset).map_err(said)?;
        return stream
            .blocking_write_and_flush(b"x")
            .map_err(|error| error.to_string());
    }
    file.write(b"x", offset).map_err(said).map(drop)
}

/// Keeps no more than two of the directories open.
pub fn deepen(dir: &str, levels: u32) -> u32 {
    let Ok(mut at) = granted(dir) else {
        return 0;
    };
    for made in 0..levels {
        let below = at.create_directory_at("d").and_then(|()| {
            at.open_at(
                PathFlags::empty(),
                "d",
                OpenFlags::DIRECTORY,
                DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
            )
        });
        match below {
            Ok(below) => at = below,
            Err(_) => return made,
        }
    }
    levels
}

pub fn list(dir: &str, path: &str) -> Result<Vec<String>, String> {
    let directory = granted(dir)?
        .open_at(
            PathFlags::SYMLINK_FOLLOW,
            path,
            OpenFlags::DIRECTORY,
            DescriptorFlags::READ,
        )
        .map_err(said)?;
    let entries = directory.read_directory().map_err(said)?;
    let mut names = Vec::new();
    while let Some(entry) = entries.read_directory_entry().map_err(said)? {
        names.push(entry.name);
    }
    Ok(names)
}

pub fn stat(dir: &str, path: &str) -> Result<String, String> {
    let stat = granted(dir)?
        .stat_at(PathFlags::SYMLINK_FOLLOW, path)
        .map_err(said)?;
    Ok(format!("{:?}, {} bytes", stat.type_, stat.size))
}

pub fn rename(dir: &str, path: &str, to_dir: &str, to_path: &str) -> Result<(), String> {
    granted(dir)?
        .rename_at(path, &granted(to_dir)?, to_path)
        .map_err(said)
}

pub fn hard_link(dir: &str, path: &str, to_dir: &str, to_path: &str) -> Result<(), String> {
    granted(dir)?
        .link_at(PathFlags::empty(), path, &granted(to_dir)?, to_path)
        .map_err(said)
}

pub fn symlink(dir: &str, target: &str, path: &str) -> Result<(), String> {
    granted(dir)?.symlink_at(target, path).map_err(said)
}

pub fn read_link(dir: &str, path: &str) -> Result<String, String> {
    granted(dir)?.readlink_at(path).map_err(said)
}

pub fn make_dir(dir: &str, path: &str) -> Result<(), String> {
    granted(dir)?.create_directory_at(path).map_err(said)
}

pub fn remove(dir: &str, path: &str) -> Result<(), String> {
    granted(dir)?.unlink_file_at(path).map_err(said)
}

pub fn remove_dir(dir: &str, path: &str) -> Result<(), String> {
    granted(dir)?.remove_directory_at(path).map_err(said)
}

pub fn set_size(dir: &str, path: &str, size: u64) -> Result<(), String> {
    let file = granted(dir)?
        .open_at(
            PathFlags::SYMLINK_FOLLOW,
            path,
            OpenFlags::empty(),
            DescriptorFlags::READ,
        )
        .map_err(said)?;
    file.set_size(size).map_err(said)
}

pub fn set_times(dir: &str, path: &str) -> Result<(), String> {
    granted(dir)?
        .set_times_at(
            PathFlags::SYMLINK_FOLLOW,
            path,
            NewTimestamp::Now,
            NewTimestamp::Now,
        )
        .map_err(said)
}

/// The granted directory that the guest sees as `name`.
pub fn granted(name: &str) -> Result<Descriptor, String> {
    get_directories()
        .into_iter()
        .find_map(|(dir, path)| (path == name).then_some(dir))
        .ok_or_else(|| "not-granted".to_owned())
}

fn said(code: ErrorCode) -> String {
    code.name().to_owned()
}
