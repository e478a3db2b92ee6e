// Computes the keyed hashes for authentication.
#include "backends/transport/socket/mesh_proof.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "backends/identity/host_identity.h"
#include "io/base/digests/digest.h"

namespace backends {
namespace {

std::string transcript(std::string_view name, const MeshHello& hello,
                       std::string_view acceptor_nonce) {
  std::string all(name);
  all.push_back('\0');
  all.append(reinterpret_cast<const char*>(&hello), sizeof hello);
  return all.append(acceptor_nonce);
}

std::string mac(const Secret& secret, const char* label, std::string_view name,
                const MeshHello& hello, const MeshChallenge& challenge,
                std::string_view statement = {}) {
  return keyed_hash(secret, label,
                    transcript(name, hello, {challenge.nonce, kNonceBytes}).append(statement));
}

}  // namespace

std::uint32_t machine_digest() {
  static const auto digest = static_cast<std::uint32_t>(base::short_digest_of(machine_id()));
  return digest;
}

std::uint32_t address_digest(const std::string& host) {
  return static_cast<std::uint32_t>(base::short_digest_of(host));
}

MeshHello make_hello(int from, int to, int stream, int streams, int port, LinkCipher cipher) {
  MeshHello hello;
  hello.from = from;
  hello.to = to;
  hello.stream = stream;
  hello.streams = streams;
  hello.port = port;
  hello.machine = machine_digest();
  hello.cipher = cipher;
  std::ranges::copy(random_bytes(kNonceBytes), hello.nonce);
  return hello;
}

MeshChallenge make_challenge(const Secret& secret, std::string_view name, const MeshHello& hello) {
  MeshChallenge challenge;
  std::ranges::copy(random_bytes(kNonceBytes), challenge.nonce);
  std::ranges::copy(mac(secret, "engine socket acceptor", name, hello, challenge), challenge.mac);
  return challenge;
}

bool proves_acceptor(const Secret& secret, std::string_view name, const MeshHello& hello,
                     const MeshChallenge& challenge) {
  return equal_in_constant_time({challenge.mac, kMacBytes},
                                mac(secret, "engine socket acceptor", name, hello, challenge));
}

std::string connector_proof(const Secret& secret, std::string_view name, const MeshHello& hello,
                            const MeshChallenge& challenge) {
  return mac(secret, "engine socket connector", name, hello, challenge);
}

std::string welcome_proof(const Secret& secret, std::string_view name, const MeshHello& hello,
                          const MeshChallenge& challenge, MeshWelcome welcome) {
  return mac(secret, "engine socket welcome", name, hello, challenge,
             {reinterpret_cast<const char*>(&welcome), offsetof(MeshWelcome, mac)});
}

LinkKeys connector_keys(const Secret& secret, std::string_view name, const MeshHello& hello,
                        const MeshChallenge& challenge) {
  static_assert(kMacBytes == RecordCipher::kKeyBytes);
  return {hello.cipher, mac(secret, "engine socket key to acceptor", name, hello, challenge),
          mac(secret, "engine socket key to connector", name, hello, challenge)};
}

LinkKeys acceptor_keys(const Secret& secret, std::string_view name, const MeshHello& hello,
                       const MeshChallenge& challenge) {
  LinkKeys keys = connector_keys(secret, name, hello, challenge);
  std::swap(keys.send, keys.receive);
  return keys;
}

}  // namespace backends
