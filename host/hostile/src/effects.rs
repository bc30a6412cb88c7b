//! A web server that counts the requests of tools, which are the effects of their calls.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Beginning of the paths that are never answered, so that calls of them never end.
const UNANSWERED: &str = "/hold";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone";
/// Maximum time for the head of a request.
const PATIENCE: Duration = Duration::from_secs(2);

/// A server on loopback. It ends with this process, which every attack has for itself.
pub struct EffectServer {
    port: u16,
    paths: Arc<Mutex<Vec<String>>>,
}

impl EffectServer {
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let server = Self {
            port: listener.local_addr()?.port(),
            paths: Arc::default(),
        };
        let paths = server.paths.clone();
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for mut stream in listener.incoming().flatten() {
                let Some(path) = path(&mut stream) else {
                    continue;
                };
                let is_answered = !path.starts_with(UNANSWERED);
                locked(&paths).push(path);
                if is_answered {
                    // A client that is gone needs no answer.
                    let _ = stream.write_all(ANSWER);
                } else {
                    unanswered.push(stream);
                }
            }
        });
        Ok(server)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The line of a module's table that lets it ask this server.
    pub fn grant(&self) -> String {
        format!(
            "http = [{{ origin = \"{}\", private = true }}]\n",
            self.url("")
        )
    }

    /// Number of the requests of this path.
    pub fn count(&self, path: &str) -> usize {
        let paths = locked(&self.paths);
        paths.iter().filter(|known| *known == path).count()
    }

    /// The paths that were asked for since the last look.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.paths))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of a request, or nothing if the client leaves before.
fn path(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut head = [0; 8 << 10];
    let read = stream.read(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head[..read]);
    head.split(' ').nth(1).map(str::to_owned)
}
