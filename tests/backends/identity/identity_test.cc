// Who am I: precedence, defaults, and errors that name the variable, its value and what was
// expected.
#include "backends/identity/identity.h"

#include <gtest/gtest.h>

#include <map>

#include "backends/backend_error.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::Identity;
using backends::IdentityRequest;

Identity resolve_request(const IdentityRequest& request,
                         std::map<std::string, std::string> variables) {
  return backends::resolve_identity(
      request,
      [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        return found != variables.end() ? std::optional<std::string>(found->second) : std::nullopt;
      });
}

std::string request_error(const IdentityRequest& request,
                          const std::map<std::string, std::string>& variables) {
  try {
    resolve_request(request, variables);
  } catch (const backends::ConfigurationError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Identity, ABareProcessIsAWorldOfOne) {
  const Identity id = resolve_request({}, {});
  EXPECT_EQ(id.rank, 0);
  EXPECT_EQ(id.world_size, 1);
  EXPECT_EQ(id.init_method, "");
  EXPECT_EQ(id.rank_from.source, "default");
}

TEST(Identity, VariablesAreRead) {
  const Identity id = resolve_request({}, {{"RANK", "3"},
                                           {"WORLD_SIZE", "4"},
                                           {"LOCAL_RANK", "1"},
                                           {"LOCAL_WORLD_SIZE", "2"},
                                           {"NODE_RANK", "1"},
                                           {"MASTER_ADDR", "node-a"},
                                           {"MASTER_PORT", "8889"}});
  EXPECT_EQ(id.rank, 3);
  EXPECT_EQ(id.world_size, 4);
  EXPECT_EQ(id.local_rank, 1);
  EXPECT_EQ(id.local_world_size, 2);
  EXPECT_EQ(id.node_rank, 1);
  EXPECT_EQ(id.init_method, "tcp://node-a:8889");
  EXPECT_EQ(id.rank_from.source, "RANK");
  EXPECT_EQ(id.master_port_from.value, "8889");
}

TEST(Identity, FlagsGoBeforeVariables) {
  IdentityRequest request{"tcp://[::1]:70", 1, 2, {}};
  const Identity id = resolve_request(request, {{"RANK", "0"}, {"WORLD_SIZE", "8"}});
  EXPECT_EQ(id.rank, 1);
  EXPECT_EQ(id.world_size, 2);
  EXPECT_EQ(id.rank_from.source, "--rank");
  EXPECT_EQ(id.init_method, "tcp://[::1]:70");
  EXPECT_EQ(resolve_request({"file:///tmp/x", 1, 2, {}}, {}).init_method, "file:///tmp/x");
}

TEST(Identity, ErrorsNameVariableValueAndExpectation) {
  EXPECT_EQ(request_error({}, {{"RANK", "two"}, {"WORLD_SIZE", "4"}}),
            "RANK=two: expected a rank from 0 below the world size 4 (WORLD_SIZE)");
  EXPECT_EQ(request_error({}, {{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
            "RANK=4: expected a rank from 0 below the world size 4 (WORLD_SIZE)");
  EXPECT_VALUES(request_error({}, {{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE=0: ranks, 1");
  EXPECT_NE(request_error({}, {{"RANK", "1"}}).find("RANK=1 without a world size"),
            std::string::npos);
  EXPECT_NE(request_error({}, {{"WORLD_SIZE", "2"}}).find("WORLD_SIZE=2 without a rank"),
            std::string::npos);
  EXPECT_NE(request_error({}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}).find("MASTER_ADDR is not set"),
            std::string::npos);
  EXPECT_NE(
      request_error(
          {}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "99999"}})
          .find("MASTER_PORT=99999: expected a port"),
      std::string::npos);
  EXPECT_NE(request_error({"tcp://host", 0, 2, {}}, {}).find("the port is missing"),
            std::string::npos);
  EXPECT_NE(request_error({"mpi://", 0, 2, {}}, {}).find("expected env://"), std::string::npos);
}

TEST(Identity, TheMisspeltMasterIsTakenWithAWarning) {
  const std::map<std::string, std::string> base = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1234"}};
  auto alias = base;
  alias["MASTER_ADD"] = "n1";
  const Identity id = resolve_request({}, alias);
  EXPECT_EQ(id.init_method, "tcp://n1:1234");
  ASSERT_EQ(id.warnings.size(), 1u);
  alias["MASTER_ADDR"] = "n2";
  EXPECT_NE(request_error({}, alias).find("contradict"), std::string::npos);
}

}  // namespace
