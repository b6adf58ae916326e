//! A network that fails when a test wants it to: a proxy in front of a server.
//!
//! It knows the wire protocol as far as it must to see where a message ends and which command it is, so that whole
//! messages are held and lost, and a chosen one among them. It has a thread of its own: neither a test that blocks while
//! it waits for a process nor a paused clock holds it up.

mod line;
mod tests;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use mongodb::bson::Document;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::wait;

/// How the network is, from the next message or the next connection on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// As it should be.
    Pass,
    /// Every message, in either direction, takes so much longer.
    Delay(Duration),
    /// A new connection is closed at once. Those that are open stay: see [`Proxy::cut`].
    Refuse,
    /// Messages vanish, and nobody is told. A connection that has lost one carries none ever after, as behind a firewall
    /// that has forgotten it.
    Swallow,
}

/// What becomes of a request that was caught.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Pass,
    /// It reaches the server later, even if the client has gone away meanwhile.
    Late(Duration),
    /// It never reaches the server; its connection is cut.
    Lost,
    /// It is on its way to the server when its connection is cut.
    CutBehind,
    /// The server has carried it out and answered when its connection is cut.
    ReplyLost,
    /// It vanishes, and so does whatever its connection carries from then on; nobody is told.
    Swallowed,
    /// The same, when the server has it.
    ReplySwallowed,
}

/// A proxy in front of one server, gone with all its connections when dropped.
pub(crate) struct Proxy {
    port: u16,
    switches: Switches,
    over: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// A request that was caught, or will be. It waits for its fate; if this is dropped it passes.
pub(crate) struct Caught {
    arrived: oneshot::Receiver<Document>,
    fate: oneshot::Sender<Fate>,
}

impl Proxy {
    /// In front of the server that listens on this port.
    pub(crate) fn before(server: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State { link: Link::Pass, open: Open::default(), traps: Vec::new() };
        let switches = Switches(Arc::new(Mutex::new(state)));
        let over = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (held, ended) = (switches.clone(), over.clone());
        let thread = std::thread::spawn(move || {
            runtime.block_on(ended.run_until_cancelled(line::listen(listener, server, held)));
        });
        Proxy { port, switches, over, thread: Some(thread) }
    }

    /// Leads to this database through the proxy. The driver does not go round it.
    pub(crate) fn uri(&self, database: &str) -> String {
        format!("mongodb://127.0.0.1:{}/{database}?directConnection=true", self.port)
    }

    pub(crate) fn set(&self, link: Link) {
        self.switches.lock().link = link;
    }

    /// Cuts all connections, with what they carry. When it returns they are closed; new ones are made as [`Link`] says.
    pub(crate) fn cut(&self) {
        let open = std::mem::take(&mut self.switches.lock().open);
        open.cut.cancel();
        // Their tasks run on the proxy's own thread.
        while Arc::strong_count(&open.connections) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Catches the first request from now on that `matches`; [`nth`] is one to give.
    ///
    /// It sees a command without the documents that the driver sends beside it: those of an insert, an update or a delete
    /// that is not run as a command.
    pub(crate) fn catch(&self, matches: impl FnMut(&Document) -> bool + Send + 'static) -> Caught {
        let (arriving, arrived) = oneshot::channel();
        let (fate, fated) = oneshot::channel();
        self.switches.lock().traps.push(Trap { matches: Box::new(matches), arriving, fated });
        Caught { arrived, fate }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.cancel();
        // A panic there has been printed, and shows in what did not get through.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Caught {
    /// Waits until there is such a request, which is held until [`Caught::then`].
    pub(crate) async fn request(&mut self) -> Document {
        let mut request = None;
        wait::until("a request to be caught", wait::LONG, async || {
            request = self.arrived.try_recv().ok();
            request.is_some()
        })
        .await;
        request.unwrap()
    }

    /// Decides, before it arrives or afterwards.
    pub(crate) fn then(self, fate: Fate) {
        // Its connection may have been cut meanwhile.
        let _ = self.fate.send(fate);
    }
}

/// The `nth` request, from 1, of this command in this collection.
pub(crate) fn nth(mut nth: usize, command: &'static str, collection: &'static str) -> impl FnMut(&Document) -> bool {
    move |request| {
        let is_one = request.get_str(command).is_ok_and(|name| name == collection);
        nth -= usize::from(is_one);
        is_one && nth == 0
    }
}

struct Trap {
    matches: Box<dyn FnMut(&Document) -> bool + Send>,
    arriving: oneshot::Sender<Document>,
    fated: oneshot::Receiver<Fate>,
}

struct State {
    link: Link,
    open: Open,
    traps: Vec<Trap>,
}

/// The connections that are open, each of which has a clone.
#[derive(Clone, Default)]
struct Open {
    cut: CancellationToken,
    connections: Arc<()>,
}

#[derive(Clone)]
struct Switches(Arc<Mutex<State>>);

impl Switches {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    async fn fate_of(&self, request: Document) -> Fate {
        let caught = {
            let traps = &mut self.lock().traps;
            let at = traps.iter_mut().position(|trap| (trap.matches)(&request));
            at.map(|at| traps.remove(at))
        };
        let Some(Trap { arriving, fated, .. }) = caught else { return Fate::Pass };
        // The test may not want to know.
        let _ = arriving.send(request);
        fated.await.unwrap_or(Fate::Pass)
    }
}
