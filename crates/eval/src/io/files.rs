//! Writes files and folders that are either complete or absent, reads compressed files, and locks folders.

use crate::failure::OrBadInput;
use anyhow::Context;
use fgrpo_files as input;
use std::fs::{File, TryLockError};
use std::io::{BufReader, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};

/// Opens a file for reading. A `.gz` or `.zst` file is decompressed while it is read.
pub fn open(path: &Path) -> std::io::Result<Box<dyn Read + Send>> {
    let file = input::open(path)?;
    Ok(match compression(path) {
        Some(Compression::Gzip) => Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file))),
        Some(Compression::Zstd) => Box::new(zstd::Decoder::new(file)?),
        None => Box::new(file),
    })
}

/// Compression of a file, by its extension.
enum Compression {
    Gzip,
    Zstd,
}

fn compression(path: &Path) -> Option<Compression> {
    match path.extension()?.to_str()? {
        "gz" => Some(Compression::Gzip),
        "zst" => Some(Compression::Zstd),
        _ => None,
    }
}

/// Returns whether [`open`] decompresses a file.
pub fn is_compressed(path: &Path) -> bool {
    compression(path).is_some()
}

/// Returns the last component of a path as a string, which is empty for `/` and for a path that ends in `..`.
pub fn name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the file name without its extension and a compression's extension: `train` for `train.jsonl.gz`.
pub fn stem(path: &Path) -> String {
    let plain = if is_compressed(path) { path.with_extension("") } else { path.to_owned() };
    plain.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Name prefix of temporary files and folders. A killed process may leave some, which aren't results.
pub const PARTIAL: &str = ".partial-";

/// Writes `bytes` to a temporary file, syncs it and renames it, so readers see either the old file or the new one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = parent(path);
    let mut file = partial_file(folder).with_context(|| format!("writing {}", path.display()))?;
    file.write_all(bytes)
        .and_then(|()| file.as_file().sync_all())
        .with_context(|| format!("writing {}", path.display()))?;
    file.persist(path).map_err(|e| e.error).with_context(|| format!("writing {}", path.display()))?;
    // Some file systems can't sync folders; the file exists nevertheless.
    let _ = sync_folder(folder);
    Ok(())
}

/// Copies a file into a folder that is being filled, and syncs it.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::copy(from, to)
        .and_then(|_| File::open(to)?.sync_all())
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}

/// Lists the entries of a folder, sorted by name. Returns an error if the folder can't be listed.
pub fn listed(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("{}: cannot list", folder.display()));
    let mut paths: Vec<PathBuf> = entries.or_bad_input()?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// Returns the folder that contains a file, which is `.` for a bare file name.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a file in `folder` with a unique temporary name. It is locked while open, so [`clear_partial`] skips it.
pub fn partial_file(folder: &Path) -> std::io::Result<NamedTempFile> {
    loop {
        // The file may become a result, so it gets the umask's permissions instead of a temporary file's private ones.
        let mut builder = tempfile::Builder::new();
        builder.permissions(std::fs::Permissions::from_mode(0o666));
        let file = builder.prefix(PARTIAL).tempfile_in(folder)?;
        // If the file system has no locks, no process can lock the file and mistake it for a leftover.
        let _ = file.as_file().lock();
        if file.as_file().metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// A folder with a unique temporary name, deleted when dropped. It is locked while it is being filled.
#[derive(Debug)]
struct PartialFolder {
    folder: TempDir,
    // Open only to hold the lock.
    _lock: File,
}

impl PartialFolder {
    fn create(parent: &Path, name: &str) -> std::io::Result<Self> {
        loop {
            let mut builder = tempfile::Builder::new();
            builder.permissions(std::fs::Permissions::from_mode(0o777));
            let folder = builder.prefix(&format!("{PARTIAL}{name}-")).tempdir_in(parent)?;
            // Before the folder is locked, another process may mistake it for a leftover and delete it.
            let lock = match File::open(folder.path()) {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let _ = lock.lock();
            if same_file(&lock, folder.path()) {
                return Ok(Self { folder, _lock: lock });
            }
        }
    }
}

/// Returns whether `path` still refers to this open file or folder.
fn same_file(open: &File, path: &Path) -> bool {
    let identity = |m: std::fs::Metadata| (m.dev(), m.ino());
    match (open.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

/// Deletes temporary files and folders of killed processes in `folder`. Those of running processes remain.
pub fn clear_partial(folder: &Path) {
    clear(folder, PARTIAL);
}

fn clear(folder: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = File::open(&path) else { continue };
        if lock.try_lock().is_ok() {
            // A leftover that can't be deleted does no harm.
            let _ = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        }
    }
}

/// Action of [`publish`] if a folder with the final name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Keeps the existing folder and drops the new one, which has the same contents.
    Keep,
    /// Replaces the existing folder.
    Replace,
}

/// Fills a temporary folder, syncs it and renames it. Safe with concurrent processes.
///
/// Returns the errors of `fill` and I/O errors. An incomplete folder never gets the final name.
pub fn publish(
    folder: &Path,
    name: &str,
    existing: Existing,
    fill: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    prepare(folder, name, fill)?.publish(existing)
}

/// A complete, synced folder that doesn't have its final name yet. Dropping it deletes it.
#[derive(Debug)]
#[must_use]
pub struct Prepared {
    partial: PartialFolder,
    name: String,
}

/// Fills a temporary folder and syncs it.
pub fn prepare(
    folder: &Path,
    name: &str,
    fill: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<Prepared> {
    // Parent folders aren't created: after a move, that would recreate a run folder at its old path.
    match std::fs::create_dir(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            Err(e).with_context(|| format!("creating {}", folder.display()))?;
        }
        _ => clear(folder, &format!("{PARTIAL}{name}-")),
    }
    let partial = PartialFolder::create(folder, name)
        .with_context(|| format!("creating a folder in {}", folder.display()))?;
    fill(partial.folder.path())?;
    sync_folder(partial.folder.path())?;
    Ok(Prepared { partial, name: name.to_owned() })
}

impl Prepared {
    /// Gives the folder its final name.
    pub fn publish(self, existing: Existing) -> anyhow::Result<PathBuf> {
        let folder = parent(self.partial.folder.path());
        let path = folder.join(&self.name);
        let replaced = match existing {
            Existing::Replace if path.exists() => Some(set_aside(&path)?),
            _ => None,
        };
        match std::fs::rename(self.partial.folder.path(), &path) {
            Err(_) if existing == Existing::Keep && path.is_dir() => return Ok(path),
            renamed => renamed.with_context(|| format!("writing {}", path.display()))?,
        }
        sync_folder(folder)?;
        drop(replaced);
        Ok(path)
    }
}

/// Deletes a folder. It is renamed first, so a kill never leaves an incomplete folder under its name.
pub fn remove_folder(path: &Path) -> anyhow::Result<()> {
    let aside = set_aside(path)?;
    aside.folder.close().with_context(|| format!("removing {}", path.display()))
}

/// Gives a folder a temporary name. Dropping the result deletes it.
fn set_aside(path: &Path) -> anyhow::Result<PartialFolder> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let context = || format!("removing {}", path.display());
    let aside = PartialFolder::create(parent(path), &name).with_context(context)?;
    // A rename may replace an empty folder.
    std::fs::rename(path, aside.folder.path()).with_context(context)?;
    Ok(aside)
}

/// Name of the file that [`lock`] locks.
const LOCK: &str = "lock";

/// Locks a folder against other processes until the result is dropped.
///
/// Returns an error that names the other process if it holds the lock, or an I/O error that names the file.
pub fn lock(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join(LOCK);
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)
                .and_then(|()| write!(file, "{}", std::process::id()))
                .with_context(|| format!("writing {}", path.display()))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            file.rewind()
                .and_then(|()| file.read_to_string(&mut holder))
                .with_context(|| format!("reading {}", path.display()))?;
            bad_input!(
                "{} is in use by another process ({}); wait for it or choose another folder",
                folder.display(),
                if holder.is_empty() { "unknown".to_owned() } else { format!("pid {holder}") }
            )
        }
        Err(TryLockError::Error(e)) => Err(e).with_context(|| format!("locking {}", path.display())),
    }
}

/// Returns whether the folder's lock file is still this open file, and not a newer one.
pub fn is_lock_of(lock: &File, folder: &Path) -> bool {
    same_file(lock, &folder.join(LOCK))
}

/// Finds a file or folder in the folder that is neither the lock file nor temporary. Returns its name.
pub fn stray_file(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let strays = entries.flatten().map(|e| e.file_name());
    Ok(strays.map(PathBuf::from).find(|n| n.as_os_str() != LOCK && !n.to_string_lossy().starts_with(PARTIAL)))
}

/// Syncs a folder, so that the names in it survive a power failure.
pub fn sync_folder(path: &Path) -> anyhow::Result<()> {
    File::open(path).and_then(|f| f.sync_all()).with_context(|| format!("syncing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_into_a_missing_folder_names_the_file() {
        let error = write_whole(Path::new("/nonexistent/report.html"), b"x").unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/report.html"));
    }

    #[test]
    fn many_publish_one_name_at_once_and_the_first_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let cache = &cache;
                scope.spawn(move || {
                    publish(cache, "x", Existing::Keep, |dir| {
                        std::fs::write(dir.join("a"), writer.to_string())?;
                        std::thread::sleep(std::time::Duration::from_millis(5));
                        Ok(std::fs::write(dir.join("b"), writer.to_string())?)
                    })
                    .unwrap();
                });
            }
        });
        let read = |name: &str| std::fs::read(cache.join("x").join(name)).unwrap();
        assert_eq!(read("a"), read("b"));
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
    }

    #[test]
    fn debris_is_cleared_and_what_is_being_filled_stays() {
        let folder = tempfile::tempdir().unwrap();
        let left = |name: &str| folder.path().join(format!("{PARTIAL}{name}"));
        std::fs::create_dir(left("dead")).unwrap();
        std::fs::write(left("dead").join("weights"), "x").unwrap();
        std::fs::write(left("file"), "x").unwrap();
        let filling = PartialFolder::create(folder.path(), "live").unwrap();
        let writing = partial_file(folder.path()).unwrap();
        clear_partial(folder.path());
        assert!(!left("dead").exists() && !left("file").exists());
        assert!(filling.folder.path().exists() && writing.path().exists());
    }

    #[test]
    fn a_folder_that_is_cleared_before_it_is_locked_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    clear_partial(folder.path());
                }
            });
            let failed = (0..3000).find_map(|_| PartialFolder::create(folder.path(), "x").err());
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
    }

    #[test]
    fn a_folder_is_replaced_and_removed_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &'static str| {
            publish(folder.path(), "x", Existing::Replace, |dir| Ok(std::fs::write(dir.join("a"), text)?))
        };
        write("old").unwrap();
        let path = write("new").unwrap();
        assert_eq!(std::fs::read_to_string(path.join("a")).unwrap(), "new");
        remove_folder(&path).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        // The link can be opened, but neither truncated nor written to.
        std::os::unix::fs::symlink("/dev/full", folder.path().join(LOCK)).unwrap();
        let error = format!("{:#}", lock(folder.path()).unwrap_err());
        assert!(error.starts_with(&format!("writing {}/lock: ", folder.path().display())), "{error}");
    }
}
