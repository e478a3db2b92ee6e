// Collectives alone: every rank throws its own darts, and all of them learn how many have hit.
//
//   engine launch --nproc-per-node 4 ./estimate_pi
//   RANK=0 WORLD_SIZE=2 ./estimate_pi tcp://n1:29500     and on another host with RANK=1
#include <engine/collectives.h>

#include <array>
#include <cstdint>
#include <iostream>
#include <random>

int main(int count, char** arguments) {
  try {
    engine::api::GroupOptions options;
    if (count > 1) options.init_method = arguments[1];
    engine::api::Group group = engine::api::Group::join(options);
    engine::api::Communicator all = group.make_communicator();

    constexpr std::int64_t kDarts = 1'000'000;
    std::mt19937_64 random(static_cast<std::uint64_t>(all.rank()));
    std::uniform_real_distribution<double> place(0, 1);
    std::array<std::int64_t, 2> hits_of_darts{0, kDarts};
    for (std::int64_t i = 0; i < kDarts; ++i) {
      const double x = place(random), y = place(random);
      if (x * x + y * y < 1) ++hits_of_darts[0];
    }
    all.all_reduce(hits_of_darts);

    if (all.rank() == 0)
      std::cout << "pi is about "
                << 4.0 * static_cast<double>(hits_of_darts[0]) /
                       static_cast<double>(hits_of_darts[1])
                << " (" << all.world_size() << " ranks over " << all.backend() << ")\n";
    group.leave();
  } catch (const engine::api::Error& error) {
    std::cerr << "estimate_pi: " << error.what() << '\n';
    return error.exit_code();
  }
}
