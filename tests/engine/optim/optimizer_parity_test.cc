// Every optimizer in float64 against optimizer_reference.txt, whose formulas are written apart from
// them (optimizer_reference.py, which also defines the parameters and gradients that are used
// here).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <sstream>

#include "engine/ops/common/cpu_dispatch.h"
#include "engine/optim/optimizer.h"
#include "tests/support/test_support.h"

namespace engine {
namespace {

struct Parameter {
  const char* name;
  TensorLayout layout;
};
const Parameter kParameters[] = {{"in.weight", TensorLayout::plain({4, 2})},
                                 {"tall.weight", TensorLayout::plain({7, 3})},
                                 {"tall.bias", TensorLayout::plain({7})},
                                 {"conv.weight", {{4, 2, 3, 3}, {2, 3, 1, 0}}},  // HWIO in memory
                                 {"wide.weight", TensorLayout::plain({3, 8})},
                                 {"out.bias", TensorLayout::plain({3})}};
const std::vector<std::string> kHidden{"tall.weight", "conv.weight", "wide.weight"};

template <class T>
std::vector<T> file_order(const FlatBuffer& buffer, std::size_t slot) {
  const FlatBuffer::Slot& s = buffer.slots()[slot];
  std::vector<T> values(static_cast<std::size_t>(s.count));
  s.layout.to_file(buffer.view(slot).data, values.data(), sizeof(T));
  return values;
}

// Element i of each slot, in file order, becomes value(slot, i).
template <class T, class Value>
void fill(FlatBuffer& buffer, Value value) {
  for (std::size_t slot = 0; slot < buffer.slots().size(); ++slot) {
    const FlatBuffer::Slot& s = buffer.slots()[slot];
    std::vector<T> values(static_cast<std::size_t>(s.count));
    for (std::int64_t i = 0; i < s.count; ++i)
      values[static_cast<std::size_t>(i)] =
          static_cast<T>(value(static_cast<std::int64_t>(slot), i));
    s.layout.to_memory(values.data(), buffer.view(slot).data, sizeof(T));
  }
}

template <class T>
class Steps {
 public:
  Steps(const char* name, OptimizerSettings settings, int threads = 1) : pool_(threads) {
    context_.threads = &pool_;
    std::vector<NamedLayout> layouts;
    for (const Parameter& p : kParameters) layouts.push_back({p.name, p.layout, DTypeOf<T>::value});
    parameters_ = ParameterBuffer(DTypeOf<T>::value, layouts);
    fill<T>(parameters_.values, [](std::int64_t salt, std::int64_t i) {
      return (static_cast<double>((i * 37 + salt * 11) % 64) - 31.5) / 64;
    });
    const OptimizerSpec& spec = *find_optimizer(name);
    for (const auto& [option, value] : default_settings(spec)) settings.emplace(option, value);
    rate_ = settings.at("lr");
    optimizer_ = spec.make(spec, {settings, parameters_.values, kHidden});
  }

  FlatBuffer& after(int steps) {
    for (std::int64_t t = 1; t <= steps; ++t) {
      fill<T>(parameters_.gradients, [&](std::int64_t salt, std::int64_t i) {
        return (static_cast<double>((i * 29 + i * i * 3 + t * 17 + salt * 7) % 128) - 63.5) / 128;
      });
      optimizer_->step(context_, rate_ * (1 - static_cast<double>(t) / 10), 0.7,
                       parameters_.gradients, parameters_.values);
    }
    return parameters_.values;
  }
  Optimizer& optimizer() { return *optimizer_; }

 private:
  ThreadPool pool_;
  KernelContext context_;
  ParameterBuffer parameters_;
  double rate_ = 0;
  std::unique_ptr<Optimizer> optimizer_;
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream text(line);
  return {std::istream_iterator<std::string>(text), {}};
}

struct Case {
  std::string name, optimizer;
  OptimizerSettings settings;
  std::map<std::string, std::vector<double>> expected;  // by parameter, in file order
};

// "case NAME OPTIMIZER OPTION=NUMBER ...", then for each parameter "NAME PARAMETER NUMBER ...".
std::vector<Case> stored_cases() {
  std::istringstream text(test_support::read_text(test_support::source_directory() +
                                                  "/tests/engine/optim/optimizer_reference.txt"));
  std::vector<Case> cases;
  for (std::string line; std::getline(text, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.at(0) == "case") {
      cases.push_back({words.at(1), words.at(2), {}, {}});
      for (std::size_t i = 3; i < words.size(); ++i) {
        const std::size_t equals = words[i].find('=');
        cases.back().settings[words[i].substr(0, equals)] = std::stod(words[i].substr(equals + 1));
      }
      continue;
    }
    for (std::size_t i = 2; i < words.size(); ++i)
      cases.back().expected[words.at(1)].push_back(std::stod(words[i]));
  }
  return cases;
}

TEST(OptimizerParity, EveryOptimizerIsItsPapersInDoublePrecision) {
  std::vector<std::string> covered;
  for (const Case& c : stored_cases()) {
    SCOPED_TRACE(c.name);
    covered.push_back(c.optimizer);
    ASSERT_NE(find_optimizer(c.optimizer), nullptr);
    ASSERT_EQ(c.expected.size(), std::size(kParameters));
    Steps<double> run(c.optimizer.c_str(), c.settings);
    const FlatBuffer& values = run.after(4);
    for (std::size_t slot = 0; slot < values.slots().size(); ++slot) {
      const std::string& name = values.slots()[slot].name;
      const std::vector<double> found = file_order<double>(values, slot),
                                &expected = c.expected.at(name);
      ASSERT_EQ(found.size(), expected.size()) << name;
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], 1e-12) << name << " " << i;
    }
  }
  for (const OptimizerSpec* spec : optimizers())
    EXPECT_GT(std::ranges::count(covered, spec->name), 0) << spec->name << " has no case";
}

// Replicas on machines with unlike processors and thread counts must stay equal to the last bit.
TEST(OptimizerParity, TheSameBitsOnEveryInstructionSetAndThreadCount) {
  for (const OptimizerSpec* spec : optimizers()) {
    SCOPED_TRACE(spec->name);
    std::vector<float> expected;
    const ops::CpuIsa chosen = ops::cpu_isa();
    for (const ops::CpuIsa isa :
         {ops::CpuIsa::kBaseline, ops::CpuIsa::kAvx2, ops::CpuIsa::kAvx512}) {
      if (!ops::is_supported(isa)) continue;
      ops::set_cpu_isa(isa);
      for (const int threads : {1, 3}) {
        Steps<float> run(spec->name, {}, threads);
        const std::span<float> values = run.after(3).span<float>();
        if (expected.empty()) expected.assign(values.begin(), values.end());
        EXPECT_EQ(std::memcmp(expected.data(), values.data(), values.size_bytes()), 0)
            << ops::to_string(isa) << ", " << threads << " threads";
      }
    }
    ops::set_cpu_isa(chosen);
  }
}

TEST(OptimizerParity, MuonKeepsOneStateForAMatrixAndTwoForTheRest) {
  Steps<float> run("muon", {});
  const std::vector<Optimizer::State> states = run.optimizer().state();
  ASSERT_EQ(states.size(), 3U);
  EXPECT_EQ(states[0].buffer->slots().size(), 3U);
  EXPECT_EQ(states[1].buffer->slots().size(), 3U);
  EXPECT_EQ(states[0].role, StateRole::kFirstMoment);
  EXPECT_EQ(states[1].role, StateRole::kFirstMoment);
  EXPECT_EQ(states[2].role, StateRole::kSecondMoment);
  EXPECT_EQ(run.optimizer().text(),
            "muon on wide.weight, conv.weight, tall.weight; adamw lr 0.0003 on the other 3");
}

TEST(OptimizerParity, MuonRefusesAModelWithoutHiddenMatrices) {
  const FlatBuffer values(DType::kF32, {{"b", TensorLayout::plain({3}), DType::kF32}});
  const OptimizerSpec& spec = *find_optimizer("muon");
  EXPECT_THROW(spec.make(spec, {default_settings(spec), values, {}}), ModelError);
}

// What others read off descriptors: names that differ, and states whose conditions are options.
TEST(OptimizerSpec, DescriptorsAreConsistent) {
  std::vector<std::string> names;
  for (const OptimizerSpec* spec : optimizers()) {
    EXPECT_EQ(find_optimizer(spec->name), spec);
    const OptimizerSettings settings = default_settings(*spec);
    for (const OptimizerOption& option : spec->options) {
      names.emplace_back(option.name);
      EXPECT_TRUE(option.needs == nullptr || settings.contains(option.needs));
    }
    for (const OptimizerState& state : spec->states)
      EXPECT_TRUE(state.needs == nullptr || settings.contains(state.needs));
    Steps<float> run(spec->name, {});
    EXPECT_EQ(run.optimizer().state().size(), states_of(*spec, settings).size());
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_EQ(find_optimizer("adam"), nullptr);
}

TEST(OptimizerSpec, SgdWithoutMomentumHasNoState) {
  const OptimizerSpec& sgd = *find_optimizer("sgd");
  OptimizerSettings settings = default_settings(sgd);
  EXPECT_EQ(states_of(sgd, settings).size(), 1U);
  settings["momentum"] = 0;
  EXPECT_TRUE(states_of(sgd, settings).empty());
}

}  // namespace
}  // namespace engine
