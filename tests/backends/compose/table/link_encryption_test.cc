// Tests which connections are encrypted: addresses, options, ciphers, and ranks that differ.
#include "backends/compose/table/link_encryption.h"

#include <gtest/gtest.h>

#include "backends/backend_error.h"
#include "tests/backends/group_harness.h"
#include "tests/backends/transport/map_store.h"
#include "tests/support/expect_contains.h"

namespace backends {
namespace {

constexpr LinkCipher kAes = LinkCipher::kAes256Gcm, kChaCha = LinkCipher::kChaCha20Poly1305;

LinkEncryption chosen(Encryption asked, const std::vector<std::string>& addresses,
                      LinkCipher last = kAes) {
  std::vector<LinkOffer> offers;
  offers.reserve(addresses.size());
  for (const std::string& address : addresses) offers.push_back({asked, kAes, address});
  offers.back().fastest = last;
  return choose_encryption(offers);
}

TEST(LinkEncryption, InternalAddressesAreNotPublic) {
  for (const char* address :
       {"127.0.0.1", "127.9.9.9", "10.0.0.1", "10.255.1.2", "172.16.0.1", "172.31.255.255",
        "192.168.3.4", "169.254.1.1", "100.64.0.1", "100.127.255.255", "::1", "fe80::1",
        "fe80::1%eth0", "febf::1", "fc00::1", "fdff::1", "::ffff:10.1.2.3"})
    EXPECT_FALSE(is_public_address(address)) << address;
  for (const char* address :
       {"203.0.113.5", "9.255.255.255", "11.0.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1",
        "169.253.1.1", "100.63.255.255", "100.128.0.1", "128.0.0.1", "2001:db8::1", "fec0::1",
        "fe00::1", "::ffff:203.0.113.5", "n7.cluster"})
    EXPECT_TRUE(is_public_address(address)) << address;
}

TEST(LinkEncryption, AutoEncryptsIfAnAddressIsPublic) {
  const LinkEncryption open = chosen(Encryption::kAuto, {"10.0.0.1", "203.0.113.5"});
  EXPECT_EQ(open.cipher, kAes);
  EXPECT_EQ(open.reason, "203.0.113.5 is public");
  const LinkEncryption inside = chosen(Encryption::kAuto, {"10.0.0.1", "10.0.0.2"});
  EXPECT_EQ(inside.cipher, LinkCipher::kNone);
  EXPECT_EQ(inside.reason, "no address is public");
  const LinkEncryption host = chosen(Encryption::kAuto, {"127.0.0.1", "127.0.0.1"});
  EXPECT_EQ(host.cipher, LinkCipher::kNone);
  EXPECT_EQ(host.reason, "");
}

TEST(LinkEncryption, OnAndOffDecideAloneAndOneRankWithoutAesDecidesTheCipher) {
  EXPECT_EQ(chosen(Encryption::kOn, {"127.0.0.1", "127.0.0.1"}).cipher, kAes);
  EXPECT_EQ(chosen(Encryption::kOn, {"127.0.0.1", "127.0.0.1"}, kChaCha).cipher, kChaCha);
  EXPECT_EQ(chosen(Encryption::kOff, {"203.0.113.5", "203.0.113.6"}).cipher, LinkCipher::kNone);
}

TEST(LinkEncryption, RanksThatDifferAllLearnBothValues) {
  map_store::MapStore store;
  const auto errors = group_harness::outcomes(3, [&](int rank) {
    const Encryption asked = rank == 2 ? Encryption::kOff : Encryption::kOn;
    agree_on_encryption(store, rank, 3, {asked, kAes, "127.0.0.1"}, std::chrono::seconds(20));
  });
  EXPECT_EQ(errors, std::vector<std::string>(
                        3,
                        "mismatch: ranks disagree: rank 0 has --encrypt on, rank 2 --encrypt "
                        "off"));
}

// It joins networks that do not reach each other: the way between them is not the job's own.
TEST(LinkEncryption, ARelayIsAReasonToEncrypt) {
  std::vector<LinkOffer> offers(
      2, {.asked = Encryption::kAuto, .fastest = kAes, .address = "10.0.0.1", .relayed = true});
  EXPECT_EQ(choose_encryption(offers).cipher, kAes);
  EXPECT_EQ(choose_encryption(offers).reason, "--relay joins networks");
  for (LinkOffer& offer : offers) offer.asked = Encryption::kOff;
  EXPECT_EQ(choose_encryption(offers).cipher, LinkCipher::kNone);
}

TEST(LinkEncryption, AllRanksGetRankZerosDecision) {
  map_store::MapStore store;
  const auto errors = group_harness::outcomes(3, [&](int rank) {
    const LinkEncryption decision = agree_on_encryption(
        store, rank, 3,
        {Encryption::kAuto, rank == 1 ? kChaCha : kAes, rank == 2 ? "2001:db8::7" : "10.0.0.1"},
        std::chrono::seconds(20));
    EXPECT_EQ(decision.cipher, kChaCha);
    EXPECT_EQ(decision.reason, "2001:db8::7 is public");
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(LinkEncryption, TheReasonOfABackendSaysHowItsLinksAreProtected) {
  const std::vector<PeerInfo> peers{{.rank = 0, .host = "a", .host_id = "a"},
                                    {.rank = 1, .host = "b", .host_id = "b"}};
  const BackendPlan socket = plan_backend("socket", LocalStage::kAuto, peers);
  const LinkEncryption open{kAes, "203.0.113.5 is public"}, off{LinkCipher::kNone, "--encrypt off"};
  EXPECT_EQ(encryption_text(socket, Encryption::kAuto, open),
            "; links encrypted (AES-256-GCM): 203.0.113.5 is public");
  EXPECT_EQ(encryption_text(socket, Encryption::kOff, off), "; links not encrypted: --encrypt off");
  EXPECT_EQ(encryption_text(socket, Encryption::kAuto, {}), "");
  BackendPlan other = socket;
  const Backend plugin{
      .name = "mpi", .reach = Reach::kHosts, .usable = true, .note = "", .create = nullptr};
  other.across = &plugin;
  EXPECT_EQ(encryption_text(other, Encryption::kAuto, open),
            "; links not encrypted: 203.0.113.5 is public, but mpi cannot encrypt");
  EXPECT_THROW(require_encryption(plugin, Encryption::kOn), ConfigurationError);
  EXPECT_NO_THROW(require_encryption(plugin, Encryption::kAuto));
  EXPECT_NO_THROW(require_encryption(*socket.across, Encryption::kOn));
}

}  // namespace
}  // namespace backends
