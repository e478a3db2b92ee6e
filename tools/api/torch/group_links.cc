// Implements joining by PyTorch's store.
#include "tools/api/torch/group_links.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <utility>

namespace engine::pytorch {
namespace {

constexpr const char* kAddressKey = "engine/address";
constexpr auto kLongestTimeout = std::chrono::milliseconds(1'000'000'000);

std::string variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

// Returns the address from which this host reaches `host`; "" if that is unknown.
std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (host.empty() || getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    // A datagram socket's connect() only chooses the route.
    const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    auto* address = reinterpret_cast<sockaddr*>(&own);
    const bool known =
        connect(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, address, &length) == 0;
    close(fd);
    std::array<char, NI_MAXHOST> text{};
    if (known &&
        getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      return text.data();
  }
  return "";
}

// Returns the host of PyTorch's store, which all ranks reach; "" for a store without one.
std::string host_of(const c10::intrusive_ptr<c10d::Store>& store) {
  c10::intrusive_ptr<c10d::Store> inner = store;
  while (const auto prefix = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(inner))
    inner = prefix->getUnderlyingStore();
  const auto tcp = c10::dynamic_intrusive_pointer_cast<c10d::TCPStore>(inner);
  return tcp ? tcp->getHost() : "";
}

api::GroupOptions options_of(const JoinRequest& request) {
  api::GroupOptions options;
  options.rank = request.rank;
  options.world_size = request.size;
  options.timeout = options.join_timeout =
      std::clamp(request.timeout, std::chrono::milliseconds(1), kLongestTimeout);
  const std::string backend = variable("ENGINE_BACKEND", "auto");
  if (backend == "gloo")
    throw api::ConfigurationError(
        78,
        "ENGINE_BACKEND is gloo, but PyTorch has a Gloo of its own in this process: expected "
        "auto, socket, shm or zmq, or use init_process_group(\"gloo\")");
  // PyTorch's Gloo also rules out the one that `auto` might choose between hosts.
  options.backend = backend == "auto" ? "socket" : backend;
  options.local_stage = variable("ENGINE_LOCAL_STAGE", backend == "auto" ? "shm" : "auto");
  options.encryption = variable("ENGINE_ENCRYPT", "auto");
  options.interface = variable("ENGINE_IFACE", "");
  options.publish = [store = request.store](const std::string& address) {
    store->set(kAddressKey, address);
  };
  options.look_up = [store = request.store] { return store->get_to_str(kAddressKey); };
  if (options.interface.empty() && request.rank == 0)
    options.interface = address_towards(host_of(request.store));
  return options;
}

// Rank 0's address in the store. A later process group may have the same name: it must not find the
// address of this one.
class Address {
 public:
  explicit Address(const JoinRequest& request) : request_(request) {}
  Address(const Address&) = delete;
  Address& operator=(const Address&) = delete;
  ~Address() { withdraw(); }

  // Called before the ranks connect: all have read the address, and none can look for the next one.
  void withdraw() noexcept {
    if (request_.rank != 0 || request_.size == 1 || withdrawn_) return;
    withdrawn_ = true;
    try {
      request_.store->deleteKey(kAddressKey);
    } catch (const std::exception&) {
      // A store that cannot delete, or that is no longer there.
    }
  }

 private:
  const JoinRequest& request_;
  bool withdrawn_ = false;
};

}  // namespace

GroupLinks::GroupLinks(const JoinRequest& request) {
  api::GroupOptions options = options_of(request);
  options.cancelled = [hurried = hurried_] { return hurried->load(); };
  Address address(request);
  group_.emplace(api::Group::join(options));
  address.withdraw();
  communicator_.emplace(group_->make_communicator());
  if (request.size > 1) messages_.emplace(group_->make_messages());
}

api::Messages& GroupLinks::messages() {
  if (!messages_)
    throw api::ConfigurationError(78,
                                  "a process group of one rank has no other to exchange "
                                  "messages with");
  return *messages_;
}

void GroupLinks::leave() noexcept {
  if (!group_) return;
  try {
    messages_.reset();
    group_->leave();
  } catch (const std::exception&) {
    // Another rank has failed, which this one no longer needs.
  }
  communicator_.reset();
  group_.reset();
}

void GroupLinks::abandon(const std::string& why) noexcept {
  if (!group_) return;
  if (messages_) messages_->abort(why);
  communicator_->abort(why);
  group_->abandon(why);
}

}  // namespace engine::pytorch
