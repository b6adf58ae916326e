//! The connections of a proxy.

use std::future::pending;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use mongodb::bson::Document;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::{Fate, Link, Switches};

pub(super) async fn listen(listener: std::net::TcpListener, server: u16, switches: Switches) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let (how, open) = {
            let state = switches.lock();
            (state.link, state.open.clone())
        };
        if !matches!(how, Link::Refuse) {
            let switches = switches.clone();
            tokio::spawn(async move {
                let line = Line { switches, dead: AtomicBool::new(false), no_reply: AtomicBool::new(false) };
                // However it ends, both ends see that it is closed.
                open.cut.run_until_cancelled(line.relay(client, server)).await;
                drop(open.connections);
            });
        }
    }
}

/// One connection.
struct Line {
    switches: Switches,
    /// It has lost a message, and will carry none.
    dead: AtomicBool,
    /// It is cut instead of carrying the next reply.
    no_reply: AtomicBool,
}

impl Line {
    async fn relay(&self, mut client: TcpStream, server: u16) -> io::Result<()> {
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await?;
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let requests = async {
            loop {
                let message = next_message(&mut from_client).await?;
                if !self.carries().await {
                    continue;
                }
                let fate = match command(&message) {
                    Some(request) => self.switches.fate_of(request).await,
                    None => Fate::Pass,
                };
                match fate {
                    Fate::Lost => return Ok(()),
                    Fate::Late(time) => sleep(time).await,
                    Fate::ReplyLost => self.no_reply.store(true, Ordering::SeqCst),
                    Fate::ReplySwallowed => self.dead.store(true, Ordering::SeqCst),
                    Fate::Swallowed => {
                        self.dead.store(true, Ordering::SeqCst);
                        continue;
                    }
                    Fate::Pass | Fate::CutBehind => {}
                }
                to_server.write_all(&message).await?;
                if matches!(fate, Fate::CutBehind) {
                    return Ok(());
                }
            }
        };
        let replies = async {
            loop {
                let Ok(message) = next_message(&mut from_server).await else {
                    // Behind a silent network the end of a connection is not seen, either.
                    return if self.dead.load(Ordering::SeqCst) { pending().await } else { Ok(()) };
                };
                if self.no_reply.load(Ordering::SeqCst) {
                    return Ok(());
                }
                if self.carries().await {
                    to_client.write_all(&message).await?;
                }
            }
        };
        tokio::select! {
            ended = requests => ended,
            ended = replies => ended,
        }
    }

    /// Waits as long as the message takes; false if it is lost.
    async fn carries(&self) -> bool {
        let link = self.switches.lock().link;
        match link {
            Link::Swallow => self.dead.store(true, Ordering::SeqCst),
            Link::Delay(time) => sleep(time).await,
            Link::Pass | Link::Refuse => {}
        }
        !self.dead.load(Ordering::SeqCst)
    }
}

/// A header of 16 bytes, which begins with the length of the whole.
async fn next_message(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut message = vec![0; 16];
    from.read_exact(&mut message).await?;
    let length = u32::from_le_bytes([message[0], message[1], message[2], message[3]]);
    message.resize((length as usize).max(16), 0);
    from.read_exact(&mut message[16..]).await?;
    Ok(message)
}

/// The body of an `OP_MSG`: behind the header and four bytes of flags, and perhaps behind sequences of documents.
fn command(message: &[u8]) -> Option<Document> {
    if *message.get(12..16)? != 2013_u32.to_le_bytes() {
        return None;
    }
    let mut sections = message.get(20..)?;
    while *sections.first()? == 1 {
        let length = u32::from_le_bytes(sections.get(1..5)?.try_into().ok()?);
        sections = sections.get(1 + length as usize..)?;
    }
    Document::from_reader(&sections[1..]).ok()
}
