// Runs getaddrinfo() in a thread and waits for it until the deadline.
#include "backends/identity/name_lookup.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "backends/backend_error.h"

namespace backends {
namespace {

struct LookUp {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::vector<std::string> addresses;
  std::string reason;
};

void run_look_up(const std::string& host, LookUp& result) {
  std::vector<std::string> found;
  std::string reason;
  try {
    for (const Endpoint& e : resolve({host, 0})) {
      if (std::find(found.begin(), found.end(), e.host) == found.end()) found.push_back(e.host);
    }
  } catch (const Error& error) {
    reason = error.what();
  }
  const std::lock_guard lock(result.mutex);
  result.addresses = std::move(found);
  result.reason = std::move(reason);
  result.done = true;
  result.changed.notify_all();
}

}  // namespace

std::vector<std::string> look_up_host(const std::string& host, Deadline deadline,
                                      std::string& reason) {
  if (is_address(host)) return {without_mapping(host)};
  const auto result = std::make_shared<LookUp>();
  std::thread([result, host] { run_look_up(host, *result); }).detach();
  std::unique_lock lock(result->mutex);
  if (!result->changed.wait_until(lock, deadline, [&] { return result->done; })) {
    reason = "cannot resolve host \"" + host + "\": no answer from the name server yet";
    return {};
  }
  if (result->addresses.empty()) reason = result->reason;
  return result->addresses;
}

bool is_loopback(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6) != 0;
}

bool is_address(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 ||
         inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &v6) == 1;
}

}  // namespace backends
