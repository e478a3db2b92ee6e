// Implements the rule for addresses and the exchange over the store.
#include "backends/compose/table/link_encryption.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "backends/backend_error.h"
#include "backends/identity/name_lookup.h"

namespace backends {
namespace {

constexpr const char* kDecisionKey = "links";
constexpr const char* kMismatch = "mismatch";

bool is_public_v4(std::uint32_t address) {
  constexpr struct {
    std::uint32_t network;
    int bits;
  } kInternal[] = {{0x7f000000, 8},    // 127.0.0.0/8
                   {0x0a000000, 8},    // 10.0.0.0/8
                   {0xac100000, 12},   // 172.16.0.0/12
                   {0xc0a80000, 16},   // 192.168.0.0/16
                   {0xa9fe0000, 16},   // 169.254.0.0/16
                   {0x64400000, 10}};  // 100.64.0.0/10
  return std::ranges::none_of(kInternal, [&](const auto& internal) {
    return (address >> (32 - internal.bits)) == (internal.network >> (32 - internal.bits));
  });
}

bool is_public_v6(const in6_addr& address) {
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    std::uint32_t v4 = 0;
    for (int i = 12; i < 16; ++i) v4 = v4 << 8 | address.s6_addr[i];
    return is_public_v4(v4);
  }
  const bool unique_local = (address.s6_addr[0] & 0xfe) == 0xfc;
  return !IN6_IS_ADDR_LOOPBACK(&address) && !IN6_IS_ADDR_LINKLOCAL(&address) && !unique_local;
}

std::string offer_key(int rank) { return std::string(kDecisionKey) + "/" + std::to_string(rank); }

std::string offer_text(const LinkOffer& offer) {
  return to_string(offer.asked) + " " + std::to_string(static_cast<std::uint32_t>(offer.fastest)) +
         " " + offer.address;
}

LinkOffer read_offer(const std::string& text) {
  std::istringstream in(text);
  std::string asked, address;
  std::uint32_t fastest = 0;
  in >> asked >> fastest >> address;
  const Encryption encryption = asked == "on"    ? Encryption::kOn
                                : asked == "off" ? Encryption::kOff
                                                 : Encryption::kAuto;
  return {encryption, static_cast<LinkCipher>(fastest), address};
}

// "1 203.0.113.5 is public"
std::string decision_text(const LinkEncryption& decision) {
  return std::to_string(static_cast<std::uint32_t>(decision.cipher)) + " " + decision.reason;
}

LinkEncryption read_decision(const std::string& text) {
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) throw PeerError("rank 0 decided \"" + text + "\" about links");
  const std::string first = text.substr(0, space), rest = text.substr(space + 1);
  if (first == kMismatch) throw MismatchError(rest);
  for (const LinkCipher cipher :
       {LinkCipher::kNone, LinkCipher::kAes256Gcm, LinkCipher::kChaCha20Poly1305}) {
    if (first == std::to_string(static_cast<std::uint32_t>(cipher))) return {cipher, rest};
  }
  throw PeerError("rank 0 decided \"" + text + "\" about links");
}

LinkEncryption decide_for_all(Store& store, int world_size, const LinkOffer& own,
                              std::chrono::milliseconds timeout) {
  std::vector<LinkOffer> offers{own};
  for (int rank = 1; rank < world_size; ++rank)
    offers.push_back(read_offer(store.get(offer_key(rank), timeout)));
  try {
    const LinkEncryption decision = choose_encryption(offers);
    store.set(kDecisionKey, decision_text(decision));
    return decision;
  } catch (const MismatchError& error) {
    store.set(kDecisionKey, std::string(kMismatch) + " " + error.what());
    throw;
  }
}

}  // namespace

bool is_public_address(const std::string& address) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return is_public_v4(ntohl(v4.s_addr));
  const std::string without_scope = address.substr(0, address.find('%'));
  return inet_pton(AF_INET6, without_scope.c_str(), &v6) != 1 || is_public_v6(v6);
}

LinkEncryption choose_encryption(const std::vector<LinkOffer>& offers) {
  const Encryption asked = offers.front().asked;
  const auto other =
      std::ranges::find_if(offers, [&](const LinkOffer& offer) { return offer.asked != asked; });
  if (other != offers.end())
    throw MismatchError("ranks disagree: rank 0 has --encrypt " + to_string(asked) + ", rank " +
                        std::to_string(other - offers.begin()) + " --encrypt " +
                        to_string(other->asked));
  const bool aes = std::ranges::all_of(
      offers, [](const LinkOffer& offer) { return offer.fastest == LinkCipher::kAes256Gcm; });
  const LinkCipher best = aes ? LinkCipher::kAes256Gcm : LinkCipher::kChaCha20Poly1305;
  if (asked == Encryption::kOn) return {best, "--encrypt on"};
  if (asked == Encryption::kOff) return {LinkCipher::kNone, "--encrypt off"};
  const auto found = std::ranges::find_if(
      offers, [](const LinkOffer& offer) { return is_public_address(offer.address); });
  if (found != offers.end()) return {best, found->address + " is public"};
  if (offers.front().relayed) return {best, "--relay joins networks"};
  const bool inside = std::ranges::all_of(
      offers, [](const LinkOffer& offer) { return is_loopback(offer.address); });
  return {LinkCipher::kNone, inside ? "" : "no address is public"};
}

LinkEncryption agree_on_encryption(Store& store, int rank, int world_size, const LinkOffer& own,
                                   std::chrono::milliseconds timeout) {
  if (rank == 0) return decide_for_all(store, world_size, own, timeout);
  store.set(offer_key(rank), offer_text(own));
  return read_decision(store.get(kDecisionKey, timeout));
}

void require_encryption(const Backend& backend, Encryption asked) {
  if (asked != Encryption::kOn || backend.reach != Reach::kHosts ||
      backend.encrypts != Encrypts::kNever)
    return;
  throw ConfigurationError(std::string("backend ") + backend.name +
                           " does not encrypt its connections, which --encrypt on requires: "
                           "expected gloo, zmq, socket or shm");
}

void require_relay(const Backend& backend) {
  if (backend.reach != Reach::kHosts || backend.relays) return;
  throw ConfigurationError(std::string("backend ") + backend.name +
                           " cannot use --relay: expected gloo, socket or shm");
}

std::string encryption_text(const BackendPlan& plan, Encryption asked,
                            const LinkEncryption& encryption) {
  if (plan.across == nullptr || plan.across->reach != Reach::kHosts || encryption.reason.empty())
    return "";
  const Encrypts how = plan.across->encrypts;
  const bool wanted = encryption.cipher != LinkCipher::kNone;
  if (how == Encrypts::kInRecords && wanted)
    return "; links encrypted (" + to_string(encryption.cipher) + "): " + encryption.reason;
  if (how == Encrypts::kWithCurve && asked != Encryption::kOff)
    return "; links encrypted (CURVE)" + (wanted ? ": " + encryption.reason : "");
  return "; links not encrypted: " +
         (wanted ? encryption.reason + ", but " + plan.across->name + " cannot encrypt"
                 : encryption.reason);
}

}  // namespace backends
