//! A wire between a client and its server that can be cut: refuse, or drop what the server answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A TCP proxy on loopback.
#[derive(Debug)]
pub struct Proxy {
    /// Where clients connect.
    pub address: SocketAddr,
    open: watch::Sender<bool>,
    cut_after: Cut,
    has_cut: Arc<AtomicBool>,
}

/// What the client sends before the wire is cut, and how often it may still send it.
type Cut = Arc<std::sync::Mutex<Option<(Vec<u8>, u32)>>>;

impl Proxy {
    /// A proxy to `server` (`host:port`).
    pub async fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback");
        let address = listener.local_addr().expect("its address");
        let (open, _) = watch::channel(true);
        let cut_after = Cut::default();
        let has_cut = Arc::new(AtomicBool::new(false));
        let server = server.to_owned();
        tokio::spawn({
            let (open, cut_after, has_cut) = (open.subscribe(), Arc::clone(&cut_after), Arc::clone(&has_cut));
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    if !*open.borrow() {
                        continue;
                    }
                    let (server, open) = (server.clone(), open.clone());
                    let (cut_after, has_cut) = (Arc::clone(&cut_after), Arc::clone(&has_cut));
                    tokio::spawn(async move {
                        if let Ok(server) = TcpStream::connect(server).await {
                            carry(client, server, open, cut_after, has_cut).await;
                        }
                    });
                }
            }
        });
        Self { address, open, cut_after, has_cut }
    }

    /// Cuts every connection and takes no new one.
    pub fn close(&self) {
        self.open.send_replace(false);
    }

    /// Takes connections again.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Once the client sends `pattern`, lets it through and cuts before the server's answer arrives: what was sent is
    /// done, and nobody hears of it. Works once.
    pub fn lose_the_answer_to(&self, pattern: &[u8]) {
        self.lose_the_answer_to_nth(pattern, 1);
    }

    /// The same, the `nth` time the client sends it (1 for the first).
    pub fn lose_the_answer_to_nth(&self, pattern: &[u8], nth: u32) {
        *self.cut_after.lock().expect("the proxy's lock") = Some((pattern.to_vec(), nth.saturating_sub(1)));
        self.has_cut.store(false, Ordering::SeqCst);
    }

    /// Whether an answer was lost since it was asked for.
    pub fn has_cut(&self) -> bool {
        self.has_cut.load(Ordering::SeqCst)
    }
}

async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    mut open: watch::Receiver<bool>,
    cut_after: Cut,
    has_cut: Arc<AtomicBool>,
) {
    let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        tokio::select! {
            sent = client.read(&mut up) => {
                let Ok(n @ 1..) = sent else { return };
                let cuts = {
                    let mut pattern = cut_after.lock().expect("the proxy's lock");
                    let cuts = match &mut *pattern {
                        Some((sent, spared)) if up[..n].windows(sent.len()).any(|window| window == &**sent) => {
                            let cuts = *spared == 0;
                            *spared = spared.saturating_sub(1);
                            cuts
                        }
                        _ => false,
                    };
                    if cuts {
                        pattern.take();
                    }
                    cuts
                };
                if server.write_all(&up[..n]).await.is_err() {
                    return;
                }
                if cuts {
                    // The server's answer proves that it acted; it is read here and goes no further.
                    let _ = server.read(&mut down).await;
                    has_cut.store(true, Ordering::SeqCst);
                    return;
                }
            }
            answered = server.read(&mut down) => {
                let Ok(n @ 1..) = answered else { return };
                if client.write_all(&down[..n]).await.is_err() {
                    return;
                }
            }
            changed = open.changed() => {
                if changed.is_err() || !*open.borrow() {
                    return;
                }
            }
        }
    }
}
