// One pair of settings for each way in which they may differ.
#include "tests/simulation/other_settings.h"

namespace simulation {

Contradiction contradiction(std::uint64_t kind) {
  const backends::Settings few = {{"--batch-size", "64"}},
                           many = {{"--batch-size", "64"}, {"--lr", "0.1"},   {"--seed", "1"},
                                   {"--model", "mlp"},     {"--epochs", "2"}, {"--save-dir", ""}};
  switch (kind % 6) {
    case 0:
      return {few, {{"--batch-size", "32"}}, "--batch-size: here has 64, there has 32"};
    case 1:
      return {
          few, {{"--batch-size", "64"}, {"--lr", "0.2"}}, "--lr: here has no value, there has 0.2"};
    case 2:
      return {many,
              {{"--batch-size", "32"},
               {"--lr", "0.2"},
               {"--seed", "2"},
               {"--model", "gpt"},
               {"--epochs", "3"},
               {"--save-dir", "run"}},
              "--batch-size: here has 64, there has 32; --lr: 0.1 and 0.2; --seed: 1 and 2; "
              "--model: mlp and gpt; and 2 more"};
    case 3:
      return {{{"--lr", "0.1"}, {"--seed", "1"}},
              {{"--seed", "1"}, {"--lr", "0.1"}},
              "the settings of here and there differ in their order"};
    case 4:
      return {{{"--classes", std::string(120, 'x')}},
              {{"--classes", "a\nb"}},
              "--classes: here has " + std::string(100, 'x') + "..., there has a b"};
    default:
      return {many, few,
              "--lr: here has 0.1, there has no value; --seed: 1 and no value; --model: "
              "mlp and no value; --epochs: 2 and no value"};
  }
}

}  // namespace simulation
