// Implements the server's loop: passes socket events to the machine, and carries out its actions.
#include "backends/store/store_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "backends/backend_error.h"
#include "io/base/files/system_error_text.h"
#include "io/base/time/deadline.h"

namespace backends {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLinger = std::chrono::seconds(2);

ServerMachine::Options machine_options(StoreServerOptions& options, int port) {
  return {.secret = std::move(options.secret),
          .job = std::move(options.job),
          .port = port,
          .heartbeat_ms = options.heartbeat_ms,
          .stall_after_ms = options.stall_after_ms,
          .stall_abort = options.stall_abort,
          .link_patience = options.link_patience,
          .random = random_bytes};
}

}  // namespace

StoreServer::StoreServer(StoreServerOptions options)
    : listener_(std::move(options.listener)),
      notice_(std::move(options.notice)),
      endpoint_(local_endpoint(listener_.fd())),
      machine_(machine_options(options, endpoint_.port), Clock::now()),
      probes_([this](LinkId link, ServerMachine::Probe result) {
        machine_.probed(link, result, Clock::now());
      }),
      acceptor_(notice_) {
  fcntl(listener_.fd(), F_SETFL, fcntl(listener_.fd(), F_GETFL) | O_NONBLOCK);
  fcntl(listener_.fd(), F_SETFD, FD_CLOEXEC);
  thread_ = std::thread([this] { run(); });
}

StoreServer::~StoreServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_deadline_ = base::deadline_in(kLinger);
  }
  wake_.wake();
  thread_.join();
}

Socket StoreServer::connect_here() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    throw PeerError("cannot connect rank 0 to its own store: " + base::system_error_text(errno));
  Socket own(ends[0]);
  {
    const std::lock_guard lock(mutex_);
    commands_.connections.emplace_back(ends[1]);
  }
  wake_.wake();
  return own;
}

void StoreServer::give_up(RefusalKind kind, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    commands_.give_up.emplace(kind, text);
  }
  wake_.wake();
}

void StoreServer::set_status(const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    commands_.status = text;
  }
  wake_.wake();
}

std::string StoreServer::last_refusal() const {
  const std::lock_guard lock(mutex_);
  return last_refusal_;
}

std::vector<RankStatus> StoreServer::statuses() {
  std::unique_lock lock(mutex_);
  statuses_wanted_ = true;
  wake_.wake();
  if (!answered_.wait_for(lock, std::chrono::seconds(1), [this] { return !statuses_wanted_; }))
    return {};
  return statuses_;
}

void StoreServer::run() {
  while (take_commands()) {
    wait_and_read();
    machine_.tick(Clock::now());
    carry_out();
    drop_closed();
    const std::lock_guard lock(mutex_);
    last_refusal_ = machine_.last_refusal();
  }
  machine_.notify_end();
  carry_out();
}

bool StoreServer::take_commands() {
  Commands commands;
  {
    const std::lock_guard lock(mutex_);
    std::swap(commands, commands_);
    if (statuses_wanted_) {
      statuses_ = machine_.statuses();
      statuses_wanted_ = false;
      answered_.notify_all();
    }
    if (!commands.give_up && !commands.status && stopping_ &&
        (machine_.may_end() || base::has_passed(stop_deadline_)))
      return false;
  }
  for (Socket& socket : commands.connections) add(std::move(socket), "this process");
  if (commands.give_up) machine_.give_up(commands.give_up->first, commands.give_up->second);
  if (commands.status) machine_.set_status(*commands.status);
  carry_out();
  return true;
}

void StoreServer::wait_and_read() {
  std::vector<pollfd> polled{{wake_.fd(), POLLIN, 0},
                             {acceptor_.polled_fd(listener_.fd()), POLLIN, 0}};
  std::vector<LinkId> links;
  for (const auto& [link, c] : connections_) {
    const int wanted = (c.close_after ? 0 : POLLIN) | (c.out.empty() ? 0 : POLLOUT);
    polled.push_back({c.socket.fd(), static_cast<short>(wanted), 0});
    links.push_back(link);
  }
  const std::size_t first_probe = polled.size();
  probes_.add_to(polled);
  if (poll(polled.data(), polled.size(), milliseconds_left(machine_.next_tick())) < 0) return;
  probes_.serve(polled, first_probe);
  if (polled[0].revents != 0) wake_.clear();
  for (std::size_t i = 0; i < links.size(); ++i) {
    StoreConnection& c = connections_.at(links[i]);
    std::string bytes, end;
    if ((polled[i + 2].revents & POLLOUT) != 0) end = c.flush();
    // The peer does not read it.
    if (c.close_after && (polled[i + 2].revents & ~POLLOUT) != 0) c.out.clear();
    if (!c.close_after && end.empty() && (polled[i + 2].revents & ~POLLOUT) != 0)
      end = c.receive(bytes);
    if (!bytes.empty()) machine_.received(links[i], bytes, Clock::now());
    if (!end.empty()) machine_.closed(links[i], end, c.ending);
    // Carry out the actions before the next read, so that replies are in the order of the requests.
    carry_out();
  }
  if (polled[1].revents != 0) accept_all();
}

void StoreServer::accept_all() {
  for (int i = 0; i < 64; ++i) {
    Socket socket = acceptor_.accept(listener_.fd());
    if (!socket) return;
    prepare_stream(socket.fd());
    const std::string peer = peer_text(socket.fd());
    add(std::move(socket), peer);
  }
}

void StoreServer::add(Socket socket, const std::string& peer) {
  const LinkId link = next_link_++;
  machine_.opened(link, peer, Clock::now());
  connections_[link].socket = std::move(socket);
}

void StoreServer::carry_out() {
  for (const ServerMachine::Output& output : machine_.take_output()) {
    if (output.kind == ServerMachine::Output::Kind::kNotice) {
      if (notice_) notice_(output.text);
      continue;
    }
    if (output.kind == ServerMachine::Output::Kind::kProbe) {
      probes_.start(output.link, output.text);
      continue;
    }
    const auto found = connections_.find(output.link);
    if (found == connections_.end() || found->second.close_after) continue;
    StoreConnection& c = found->second;
    if (output.kind == ServerMachine::Output::Kind::kClose) {
      c.close_after = true;
      c.deadline = base::deadline_in(kHandshakeTimeout);
    } else if (c.out.size() + output.text.size() > 4 * kFrameBytes) {
      machine_.closed(output.link, "it does not read its input", Ending::kBroken);
    } else {
      c.out += output.text;
    }
    if (const std::string end = c.flush(); !end.empty()) {
      machine_.closed(output.link, end, c.ending);
      c.out.clear();
    }
  }
}

void StoreServer::drop_closed() {
  std::erase_if(connections_, [](const auto& entry) {
    const StoreConnection& c = entry.second;
    return c.close_after && (c.out.empty() || base::has_passed(c.deadline));
  });
}

}  // namespace backends
