// Decides, equally on all ranks, whether the connections between ranks are encrypted.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/compose/table/backend_table.h"
#include "backends/secret.h"
#include "backends/store.h"

namespace backends {

struct LinkEncryption {
  LinkCipher cipher = LinkCipher::kNone;
  std::string reason;  // "203.0.113.5 is public"; "": all on loopback, and nothing was asked for
};

// A rank's part in the decision.
struct LinkOffer {
  Encryption asked = Encryption::kAuto;
  LinkCipher fastest = LinkCipher::kChaCha20Poly1305;
  std::string address;   // numeric, at which the others reach it
  bool relayed = false;  // --relay, on all ranks or on none
};

// Returns true for an address outside loopback, RFC 1918, link-local, 100.64.0.0/10 (RFC 6598) and
// fc00::/7 (RFC 4193), and for a text that is not an address.
bool is_public_address(const std::string& address);

// offers[r] is rank r's. `auto` encrypts if an address is public, and for a relay, which serves
// ranks in different networks. AES-256-GCM if every rank computes it. Throws MismatchError if ranks
// ask for different things.
LinkEncryption choose_encryption(const std::vector<LinkOffer>& offers);

// Collective over all ranks: rank 0 decides. Throws MismatchError as above on every rank, and as
// Store::get().
LinkEncryption agree_on_encryption(Store& store, int rank, int world_size, const LinkOffer& own,
                                   std::chrono::milliseconds timeout);

// Throws ConfigurationError if --encrypt on was given and the backend cannot encrypt between hosts.
void require_encryption(const Backend& backend, Encryption asked);

// Throws ConfigurationError for a backend between hosts that cannot use a relay.
void require_relay(const Backend& backend);

// Completes the reason for a backend: "; links encrypted (AES-256-GCM): 203.0.113.5 is public". ""
// if the plan has no connections between hosts.
std::string encryption_text(const BackendPlan& plan, Encryption asked,
                            const LinkEncryption& encryption);

}  // namespace backends
