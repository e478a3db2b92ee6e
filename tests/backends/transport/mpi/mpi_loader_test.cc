// MPI libraries of each ABI, played by fake_mpi.cc: they are recognized, and get their handles.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "backends/backend_error.h"
#include "backends/transport/mpi/mpi_backend.h"
#include "backends/transport/mpi/mpi_loader.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::load_mpi_library;
using backends::MpiVariables;
using Settings = std::map<std::string, std::string>;

MpiVariables variables(const Settings& settings) {
  return [settings](const char* name) {
    const auto found = settings.find(name);
    return found == settings.end() ? std::string() : found->second;
  };
}

std::string load_error(const Settings& settings, const std::vector<std::string>& names) {
  try {
    return "loaded " + load_mpi_library(variables(settings), names)->path;
  } catch (const backends::ConfigurationError& error) {
    return error.what();
  }
}

struct FakeMpi {
  const char* path;
  const char* version;
};
void PrintTo(const FakeMpi& mpi, std::ostream* out) { *out << mpi.version; }

class MpiAbis : public testing::TestWithParam<FakeMpi> {};

TEST_P(MpiAbis, GetTheirOwnHandles) {
  const auto mpi = load_mpi_library(variables({{"ENGINE_MPI_LIBRARY", GetParam().path}}), {});
  EXPECT_EQ(mpi->path, GetParam().path);
  EXPECT_EQ(mpi->version, GetParam().version);
  mpi->start();
  EXPECT_EQ(mpi->world_rank(), 0);
  EXPECT_EQ(mpi->world_size(), 1);
  const auto channel = mpi->connect({0}, 7);
  std::string from = "abc", to(3, ' ');
  const int size = 3, offset = 0;
  const auto expect_sent = [&](const char* call) {
    EXPECT_TRUE(channel->is_complete()) << call;
    EXPECT_EQ(to, from) << call;
    to = "   ";
  };
  channel->begin_all_gather(from.data(), size, to.data());
  expect_sent("all_gather");
  channel->begin_all_gather_blocks(from.data(), size, {to.data(), &size, &offset});
  expect_sent("all_gather_blocks");
  channel->begin_all_to_all(from.data(), size, to.data());
  expect_sent("all_to_all");
  channel->begin_all_to_all_blocks({from.data(), &size, &offset}, {to.data(), &size, &offset});
  expect_sent("all_to_all_blocks");
  channel->progress();
  channel->begin_broadcast(from.data(), size, 0);
  EXPECT_TRUE(channel->is_complete());
  channel->free();
}

TEST_P(MpiAbis, ReportErrorsInTheLibrarysWords) {
  const auto mpi = load_mpi_library(variables({{"ENGINE_MPI_LIBRARY", GetParam().path}}), {});
  mpi->start();
  try {
    static_cast<void>(mpi->connect({0}, 8));  // not the tag that the library accepts
    FAIL() << "it was accepted";
  } catch (const backends::PeerError& error) {
    EXPECT_STREQ(error.what(), "MPI_Comm_create_group: a wrong handle");
  }
}

INSTANTIATE_TEST_SUITE_P(Fakes, MpiAbis,
                         testing::Values(FakeMpi{FAKE_MPICH, "MPICH Version: 4.9.1"},
                                         FakeMpi{FAKE_OPEN_MPI, "Open MPI v4.9.1"},
                                         FakeMpi{FAKE_STANDARD_MPI, "Some MPI 9.1"}));

TEST(MpiLibrary, OfAnUnknownAbiIsNamedWithItsVersion) {
  EXPECT_VALUES(load_error({{"ENGINE_MPI_LIBRARY", FAKE_UNKNOWN_MPI}}, {}),
                "ABI " FAKE_UNKNOWN_MPI
                " (\"Other MPI 2.25 08/01/20\") unknown: Open MPI, MPICH ABI");
}

TEST(MpiLibrary, ThatIsNoneOrCannotBeLoadedIsNamed) {
  EXPECT_VALUES(load_error({{"ENGINE_MPI_LIBRARY", "libm.so.6"}}, {}),
                "libm.so.6 MPI 3 MPI_Get_library_version");
  EXPECT_VALUES(load_error({{"ENGINE_MPI_LIBRARY", "/nowhere/libmpi.so"}}, {FAKE_MPICH}),
                "cannot load ENGINE_MPI_LIBRARY (/nowhere/libmpi.so: No such file or directory)");
  EXPECT_VALUES(load_error({}, {"libnone.so.40", "libnone.so.12"}),
                "no MPI library (libnone.so.40, libnone.so.12); ENGINE_MPI_LIBRARY");
}

TEST(MpiLibrary, ThatExistsButCannotBeLoadedIsNotPassedOver) {
  EXPECT_VALUES(load_error({}, {"/dev/null", FAKE_MPICH}), "cannot load /dev/null");
}

TEST(MpiLibrary, IsTheFirstThatExists) {
  EXPECT_EQ(load_error({}, {"libnone.so.40", FAKE_MPICH, FAKE_OPEN_MPI}),
            std::string("loaded ") + FAKE_MPICH);
}

TEST(MpiLibrary, OfTheLauncherIsTriedFirst) {
  const auto first = [](const Settings& settings) {
    return backends::mpi_library_names(variables(settings)).front();
  };
  EXPECT_EQ(first({}), "libmpi.so.40");
  EXPECT_EQ(first({{"PMI_RANK", "1"}}), "libmpi.so.12");
  EXPECT_EQ(first({{"MPI_LOCALNRANKS", "2"}}), "libmpi.so.12");
  EXPECT_EQ(first({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMI_RANK", "1"}}), "libmpi.so.40");
  EXPECT_EQ(first({{"PMIX_RANK", "0"}}), "libmpi.so.40");
}

TEST(MpiLibrary, NeedsALauncher) {
  const auto has = [](const Settings& settings) {
    return backends::has_mpi_launcher(variables(settings));
  };
  EXPECT_FALSE(has({}));
  EXPECT_FALSE(has({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"SLURM_PROCID", "0"}}));
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_CONTROL_PORT", "MV2_COMM_WORLD_SIZE"})
    EXPECT_TRUE(has({{name, "1"}})) << name;
}

TEST(MpiPieces, AreCountedByInt) {
  EXPECT_EQ(backends::mpi_piece_bytes(2), 256u << 10);
  for (const int ranks : {2, 8191, 8192, 10'000, 65'536}) {
    const std::size_t piece = backends::mpi_piece_bytes(ranks);
    EXPECT_GT(piece, 0u);
    EXPECT_EQ(piece % sizeof(double), 0u);
    EXPECT_LE((piece + sizeof(double)) * static_cast<std::size_t>(ranks),
              static_cast<std::size_t>(std::numeric_limits<int>::max()))
        << ranks;
  }
}

}  // namespace
