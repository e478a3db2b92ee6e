// The thread that answers ZAP requests.
#include "backends/transport/zmq/zmq_door.h"

#include <vector>
#include <zmq_addon.hpp>

#include "backends/store/secret.h"

namespace backends {

ZmqDoor::ZmqDoor(zmq::context_t& context) : questions_(context, zmq::socket_type::rep) {
  questions_.set(zmq::sockopt::linger, 0);
  questions_.bind("inproc://zeromq.zap.01");
}

ZmqDoor::~ZmqDoor() {
  if (thread_.joinable()) thread_.join();
}

void ZmqDoor::admit(std::map<std::string, Guest> guests) {
  guests_ = std::move(guests);
  thread_ = std::thread([this] {
    try {
      answer_all();
    } catch (const zmq::error_t&) {
      // The context was shut down.
    }
    questions_.close();
  });
}

void ZmqDoor::answer_all() {
  // version, request, domain, address, identity, mechanism, credentials
  enum Field { kVersion, kRequest, kDomain, kMechanism = 5, kFirstCredential };
  for (;;) {
    std::vector<zmq::message_t> question;
    if (!zmq::recv_multipart(questions_, std::back_inserter(question))) continue;
    const auto text = [&](std::size_t field) {
      return field < question.size() ? question[field].to_string() : std::string();
    };
    // The last credential: CURVE's only one is the key, PLAIN's second one the password.
    const bool welcome = question.size() > kFirstCredential &&
                         is_welcome(text(kDomain), text(kMechanism), text(question.size() - 1));
    const std::string answer[] = {text(kVersion),
                                  text(kRequest),
                                  welcome ? "200" : "400",
                                  welcome ? "" : "not of this job",
                                  "",
                                  ""};
    for (std::size_t i = 0; i < std::size(answer); ++i)
      questions_.send(zmq::buffer(answer[i]),
                      i + 1 < std::size(answer) ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
}

bool ZmqDoor::is_welcome(const std::string& domain, const std::string& mechanism,
                         const std::string& credential) const {
  const auto guest = guests_.find(domain);
  if (guest == guests_.end()) return false;
  const std::string& expected = mechanism == "CURVE" ? guest->second.key : guest->second.password;
  return (mechanism == "CURVE" || mechanism == "PLAIN") && !expected.empty() &&
         equal_in_constant_time(credential, expected);
}

}  // namespace backends
