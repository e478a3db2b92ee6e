// Implements the thread that answers ZAP requests.
#include "backends/transport/zmq/zap_handler.h"

#include <csignal>
#include <vector>
#include <zmq_addon.hpp>

#include "backends/secret.h"
#include "backends/transport/zmq/zmq_limits.h"

namespace backends {

ZapHandler::ZapHandler(zmq::context_t& context) : requests_(context, zmq::socket_type::rep) {
  requests_.set(zmq::sockopt::linger, 0);
  requests_.bind("inproc://zeromq.zap.01");
}

ZapHandler::~ZapHandler() {
  if (thread_.joinable()) thread_.join();
}

void ZapHandler::serve(std::map<std::string, Peer> peers) {
  peers_ = std::move(peers);
  thread_ = std::thread([this] {
    // libzmq's calls fail if a signal arrives, so signals go to the other threads.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    const InsideZmq inside;
    try {
      answer_all();
    } catch (const std::exception&) {
      // The context was shut down, or memory is short; a connection without an answer is rejected.
    }
    requests_.close();
  });
}

void ZapHandler::answer_all() {
  // The fields are version, request, domain, address, identity, mechanism, credentials.
  enum Field { kVersion, kRequest, kDomain, kMechanism = 5, kFirstCredential };
  for (;;) {
    std::vector<zmq::message_t> request;
    if (!zmq::recv_multipart(requests_, std::back_inserter(request))) continue;
    const auto text = [&](std::size_t field) {
      return field < request.size() ? request[field].to_string() : std::string();
    };
    // Check the last credential: CURVE's only one is the key, PLAIN's second one the password.
    const bool allowed = request.size() > kFirstCredential &&
                         is_allowed(text(kDomain), text(kMechanism), text(request.size() - 1));
    const std::string answer[] = {text(kVersion),
                                  text(kRequest),
                                  allowed ? "200" : "400",
                                  allowed ? "" : "unauthenticated",
                                  "",
                                  ""};
    for (std::size_t i = 0; i < std::size(answer); ++i)
      requests_.send(zmq::buffer(answer[i]),
                     i + 1 < std::size(answer) ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
}

bool ZapHandler::is_allowed(const std::string& domain, const std::string& mechanism,
                            const std::string& credential) const {
  const auto peer = peers_.find(domain);
  if (peer == peers_.end()) return false;
  const std::string& expected = mechanism == "CURVE" ? peer->second.key : peer->second.password;
  return (mechanism == "CURVE" || mechanism == "PLAIN") && !expected.empty() &&
         equal_in_constant_time(credential, expected);
}

}  // namespace backends
