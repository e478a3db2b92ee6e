// Exchanges the ranks' capabilities and the communicator id through the store.
#include "backends/transport/nccl/nccl_bootstrap.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <vector>

#include "backends/backend_error.h"
#include "backends/identity/host_identity.h"
#include "backends/transport/nccl/nccl_backend.h"
#include "backends/transport/nccl/nccl_library.h"
#include "io/gpu/cuda_runtime.h"

namespace backends {
namespace {

// Sent to rank 0 with one field per line.
struct Capabilities {
  std::string missing, version;
  std::string gpu;   // host and UUID; each slice of a card (MIG) has its own
  std::string card;  // host and bus address
  std::string host;  // host name for messages
};

std::string to_text(const Capabilities& e) {
  return e.missing + "\n" + e.version + "\n" + e.gpu + "\n" + e.card + "\n" + e.host + "\n";
}
Capabilities from_text(const std::string& text) {
  Capabilities e;
  std::istringstream lines(text);
  for (std::string* each : {&e.missing, &e.version, &e.gpu, &e.card, &e.host})
    std::getline(lines, *each);
  return e;
}

std::string one_line(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text;
}

Capabilities own_capabilities() {
  Capabilities e;
  e.missing = missing_for_nccl();
  if (e.missing.empty()) e.missing = base::cuda::missing();
  e.missing = one_line(e.missing);
  if (!e.missing.empty()) return e;
  const int device = base::cuda::current_device();
  const std::string bus = base::cuda::bus_address(device);
  e.version = std::to_string(nccl_library().version);
  e.gpu = host_id() + " " + base::cuda::device_info(device).uuid;
  e.card = host_id() + " " + bus;
  e.host = host_name() + ", GPU " + bus;
  return e;
}

bool may_share() {
  const char* text = std::getenv("ENGINE_ALLOW_SHARED_GPU");
  return text != nullptr && std::string(text) == "1";
}

// NCCL versions that support several ranks per card read this variable.
bool may_share_cards() {
  const char* text = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return text != nullptr && std::string(text) == "1";
}

// Returns why the ranks cannot use NCCL; "" if they can.
std::string refusal_of(const BackendContext& context, const std::vector<Capabilities>& all) {
  const auto name = [&](std::size_t r) { return "rank " + std::to_string(context.members[r]); };
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (!all[r].missing.empty()) return name(r) + " cannot use NCCL: " + all[r].missing;
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    const int version = std::atoi(all[r].version.c_str()),
              first = std::atoi(all[0].version.c_str());
    if (version / 100 != first / 100)
      return name(0) + " has NCCL " + nccl_version_text(first) + ", " + name(r) + " " +
             nccl_version_text(version) +
             ": install one version everywhere, or select it with ENGINE_NCCL_LIBRARY";
    for (std::size_t other = 0; other < r && !may_share(); ++other) {
      if (all[other].gpu == all[r].gpu)
        return name(other) + " and " + name(r) + " use one GPU (" + all[r].host +
               "), but NCCL needs one GPU per rank: give each its own (--device), or use staged";
      if (all[other].card == all[r].card && !may_share_cards())
        return name(other) + " and " + name(r) + " use two slices (MIG) of one GPU (" +
               all[r].host +
               "), which NCCL takes for one GPU: use staged, or set NCCL_MULTI_RANK_GPU_ENABLE=1 "
               "if this NCCL knows it";
    }
  }
  return "";
}

// setenv() may free the list that another thread is reading in getenv(): this leaves it as it was.
void add_variable(const std::string& name_and_value) {
  std::size_t count = 0;
  while (environ[count] != nullptr) ++count;
  char** const list = new char*[count + 2];
  std::copy_n(environ, count, list);
  list[count] = strdup(name_and_value.c_str());
  list[count + 1] = nullptr;
  environ = list;
}

// NCCL reads the variable in its first call.
void set_own_host_id(const BackendContext& context) {
  static std::once_flag once;
  std::call_once(once, [&] {
    if (std::getenv("NCCL_HOSTID") == nullptr)
      add_variable("NCCL_HOSTID=" + host_name() + "-" + std::to_string(getpid()));
    if (context.rank == 0 && context.notice)
      context.notice(
          "ENGINE_ALLOW_SHARED_GPU=1: ranks may share a GPU; NCCL treats them as separate hosts "
          "and uses the network: for tests of correctness, not of speed");
  });
}

}  // namespace

NcclBootstrap bootstrap_nccl(const BackendContext& context) {
  const Capabilities own = own_capabilities();
  if (own.missing.empty() && may_share()) set_own_host_id(context);
  const std::string key = context.prefix + "/nccl";
  NcclBootstrap bootstrap;
  if (context.rank != 0) {
    context.store.set(key + "/" + std::to_string(context.rank), to_text(own));
    const std::string answer = context.store.get(key, context.time_to_connect());
    if (!answer.empty() && answer[0] == '-') {
      bootstrap.refusal = answer.substr(1);
      wait_until_all_read(context.store, key, context.rank, context.world_size);
    } else if (answer.size() == 1 + sizeof bootstrap.id) {
      std::memcpy(&bootstrap.id, answer.data() + 1, sizeof bootstrap.id);
    } else {
      throw PeerError("NCCL's id came as " + std::to_string(answer.size()) + " bytes, expected " +
                      std::to_string(1 + sizeof bootstrap.id));
    }
    return bootstrap;
  }
  std::vector<Capabilities> all{own};
  for (int r = 1; r < context.world_size; ++r)
    all.push_back(
        from_text(context.store.get(key + "/" + std::to_string(r), context.time_to_connect())));
  bootstrap.refusal = refusal_of(context, all);
  std::string answer = "-" + bootstrap.refusal;
  if (bootstrap.refusal.empty()) {
    check_nccl(nccl_library().ncclGetUniqueId(&bootstrap.id), "ncclGetUniqueId");
    answer = "+" + std::string(reinterpret_cast<const char*>(&bootstrap.id), sizeof bootstrap.id);
  }
  context.store.set(key, answer);
  if (!bootstrap.refusal.empty()) wait_until_all_read(context.store, key, 0, context.world_size);
  return bootstrap;
}

void wait_until_all_read(Store& store, const std::string& key, int rank, int world_size) noexcept {
  constexpr auto kTimeout = std::chrono::seconds(3);
  try {
    if (rank != 0) {
      store.set(key + "/read/" + std::to_string(rank), "1");
      store.get(key + "/all read", kTimeout);
      return;
    }
    for (int r = 1; r < world_size; ++r) store.get(key + "/read/" + std::to_string(r), kTimeout);
    store.set(key + "/all read", "1");
  } catch (const std::exception&) {
    // Another rank has ended already; this rank reports its own error anyway.
  }
}

}  // namespace backends
