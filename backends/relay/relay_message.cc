// Computes the keyed hashes of the relay's handshake.
#include "backends/relay/relay_message.h"

#include <algorithm>

#include "io/base/text/escape_text.h"

namespace backends {
namespace {

std::string hello_mac(const Secret& secret, const char* label, const RelayHello& hello,
                      const RelayChallenge& challenge) {
  std::string all(reinterpret_cast<const char*>(&hello), sizeof hello);
  return keyed_hash(secret, label, all.append(challenge.nonce, kNonceBytes));
}

}  // namespace

std::string relay_pair(const Secret& group_secret, const RelayedLink& link) {
  std::string text(link.name);
  text.push_back('\0');
  text += std::to_string(link.lower) + " " + std::to_string(link.higher) + " " +
          std::to_string(link.stream);
  return keyed_hash(group_secret, "engine relay pair", text);
}

RelayHello make_relay_hello(RelayEnd end, int from, int to, const std::string& pair,
                            std::string_view job) {
  RelayHello hello;
  hello.end = end;
  hello.from = from;
  hello.to = to;
  std::copy_n(pair.begin(), std::min(pair.size(), kMacBytes), hello.pair);
  std::copy_n(job.begin(), std::min(job.size(), kRelayJobBytes), hello.job);
  std::ranges::copy(random_bytes(kNonceBytes), hello.nonce);
  return hello;
}

RelayChallenge make_relay_challenge(const Secret& secret, const RelayHello& hello) {
  RelayChallenge challenge;
  std::ranges::copy(random_bytes(kNonceBytes), challenge.nonce);
  std::ranges::copy(hello_mac(secret, "engine relay", hello, challenge), challenge.mac);
  return challenge;
}

bool proves_relay(const Secret& secret, const RelayHello& hello, const RelayChallenge& challenge) {
  return equal_in_constant_time({challenge.mac, kMacBytes},
                                hello_mac(secret, "engine relay", hello, challenge));
}

std::string relay_rank_proof(const Secret& secret, const RelayHello& hello,
                             const RelayChallenge& challenge) {
  return hello_mac(secret, "engine relay rank", hello, challenge);
}

std::string job_of(const RelayHello& hello) {
  const std::string_view all(hello.job, kRelayJobBytes);
  return base::escape_text(std::string(all.substr(0, all.find('\0'))));
}

}  // namespace backends
