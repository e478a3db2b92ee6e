// Resolving: defaults, ranges and choices with their messages, contradictions, TOML round trip,
// settings to agree on.
#include "tools/options/table/run_config.h"
#include "io/base/text/text_parts.h"
#include "tools/options/input/config_sources.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/optim/loss_scale.h"
#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/named_values.h"
#include "tests/support/test_support.h"
#include "tools/options/table/option_rules.h"

namespace {

using io::ConfigError;
using test_support::NamedValues;
using tools::ConfigValues;

// Values as if from the command line: "lr=0.1" came from --lr.
ConfigValues flags(const NamedValues& given) {
  ConfigValues values{{"model", {"mlp", "--model"}}, {"dataset", {"mnist", "--dataset"}}};
  for (const auto& [name, value] : given) values[name] = {value, "--" + name};
  return values;
}

tools::RunConfig run_of(const NamedValues& given) {
  return tools::resolve_run_config(flags(given));
}

std::string fault(const ConfigValues& values) {
  return test_support::error_of<ConfigError>([&] { tools::resolve_run_config(values); });
}
std::string fault_of(const NamedValues& given) { return fault(flags(given)); }

TEST(RunConfig, MeasuredSlicesNeedSumsThatRanksMakeForEachOther) {
  EXPECT_FALSE(run_of({}).measured_slices);
  EXPECT_TRUE(run_of({{"slices", "measured"}}).measured_slices);
  EXPECT_TRUE(run_of({{"slices", "measured"}, {"sync", "params"}}).measured_slices);
  EXPECT_FALSE(run_of({{"slices", "equal"}, {"reduction-order", "canonical"}}).measured_slices);
  EXPECT_CONTAINS(fault_of({{"slices", "measured"}, {"reduction-order", "canonical"}}),
                  "--slices measured requires --reduction-order fast");
  EXPECT_CONTAINS(fault_of({{"slices", "measured"}, {"shard-optimizer", "true"}}),
                  "without --shard-optimizer");
  EXPECT_CONTAINS(fault_of({{"slices", "ring"}}), "--slices is 'ring'");
}

TEST(RunConfig, VariablesWithoutEffectAreNamed) {
  const auto lines = [](const NamedValues& given, const ConfigValues& variables) {
    ConfigValues values = flags(given);
    values.insert(variables.begin(), variables.end());
    return tools::variables_without_effect(values, tools::resolve_run_config(values).origin);
  };
  const ConfigValues every{{"sync-every", {"3", "ENGINE_SYNC_EVERY"}}};
  EXPECT_EQ(lines("sync=params", every), std::vector<std::string>{});
  EXPECT_EQ(
      lines("sync=grad", every),
      std::vector<std::string>{"ENGINE_SYNC_EVERY has no effect: --sync-every requires --sync "
                               "params|post-local|slowmo|diloco|streaming|gossip|auto; --sync is "
                               "'grad' (from --sync)"});
  EXPECT_EQ(lines("steps=5", {{"epochs", {"2", "ENGINE_EPOCHS"}}}),
            std::vector<std::string>{"ENGINE_EPOCHS has no effect: --steps is '5' (from --steps)"});
  EXPECT_EQ(
      lines("device=cpu", {{"devices", {"0,1", "ENGINE_DEVICES"}}}),
      std::vector<std::string>{"ENGINE_DEVICES has no effect: --device is 'cpu' (from --device)"});
  EXPECT_EQ(lines("devices=cpu:0,cpu:1", {{"device", {"cuda", "ENGINE_DEVICE"}}}),
            std::vector<std::string>{
                "ENGINE_DEVICE has no effect: --devices is 'cpu:0,cpu:1' (from --devices)"});
  // Switched off, or the default: nothing is missed.
  EXPECT_EQ(lines("sync=grad", {{"average-buffers", {"false", "ENGINE_AVERAGE_BUFFERS"}}}),
            std::vector<std::string>{});
}

TEST(RunConfig, AnEmptyTextIsRefusedWithWhatIsExpected) {
  EXPECT_VALUES(fault_of({{"sync", "params"}, {"average-state", ""}}),
                "--average-state '' --average-state 1");
}

TEST(RunConfig, DefaultsTrainOneEpochWithMomentum) {
  const tools::RunConfig config = run_of({});
  EXPECT_EQ(config.epochs, 1);
  EXPECT_EQ(config.steps, 0);
  EXPECT_EQ(config.data.sampling.global_batch, 128);
  EXPECT_EQ(config.data.batch_of_rank, 0);
  EXPECT_EQ(config.averaging.method, tools::AveragingOptions::Method::kGradients);
  EXPECT_EQ(config.averaging.name, "grad");
  EXPECT_EQ(config.update.rate.base, 0.05);
  EXPECT_EQ(config.update.settings.at("momentum"), 0.9);
  EXPECT_EQ(config.update.settings.at("weight-decay"), 0);
  EXPECT_TRUE(config.data.sampling.shuffle);
  EXPECT_FALSE(config.identity.rank || config.identity.world_size || config.identity.local_rank);
  EXPECT_EQ(config.group.rendezvous_timeout_ms, 300'000);
  EXPECT_EQ(config.group.timeout_ms, 600'000);
  EXPECT_EQ(config.group.heartbeat_ms, 1000);
  EXPECT_EQ(config.evaluate.count, 1);
  EXPECT_TRUE(config.evaluate.epochs);
  EXPECT_FALSE(config.keeping.resume.is_wanted());
  EXPECT_EQ(config.on_nonfinite, engine::OnNonFinite::kAbort);
  EXPECT_EQ(config.origin.at("lr").value, "0.05");
}

TEST(RunConfig, AdamwHasItsOwnDefaults) {
  const tools::RunConfig config = run_of("optimizer=adamw");
  EXPECT_EQ(config.update.rate.base, 0.001);
  EXPECT_EQ(config.update.settings.at("weight-decay"), 0.01);
  EXPECT_FALSE(config.update.settings.contains("momentum"));
  EXPECT_EQ(config.update.settings.at("adam-beta2"), 0.999);
}

TEST(RunConfig, ValuesOfEveryType) {
  const tools::RunConfig config = run_of(
      "dataset=synthetic synthetic-shape=32x16x3 steps=500 rank=1 world-size=2 "
      "lr-schedule=step lr-milestones=30,60 shuffle=off eval-every=200 "
      "batch-size-per-device=16 seed=9223372036854775807 save-dir=out save-every=2e");
  EXPECT_EQ(config.data.set.synthetic.shape, (std::array<std::int64_t, 3>{32, 16, 3}));
  EXPECT_EQ(config.steps, 500);
  EXPECT_EQ(config.identity.rank, 1);
  EXPECT_EQ(config.identity.world_size, 2);
  EXPECT_EQ(config.update.milestone_epochs, (std::vector<std::int64_t>{30, 60}));
  EXPECT_FALSE(config.data.sampling.shuffle);
  EXPECT_EQ(config.evaluate.count, 200);
  EXPECT_FALSE(config.evaluate.epochs);
  EXPECT_EQ(config.data.batch_of_rank, 16);
  EXPECT_EQ(config.seed, 9223372036854775807u);
  EXPECT_EQ(config.save.count, 2);
  EXPECT_TRUE(config.save.epochs);
  EXPECT_EQ(config.origin.at("epochs").source, "not used");
}

TEST(RunConfig, MessagesNameOptionValueSourceAndExpectation) {
  EXPECT_EQ(fault_of("lr=-1"), "--lr is '-1' (from --lr); expected a number above 0");
  EXPECT_EQ(fault_of("lr=fast"), "--lr is 'fast' (from --lr); expected a number");
  EXPECT_EQ(fault_of("lr="), "--lr is '' (from --lr); expected a number");
  EXPECT_EQ(fault_of("sync=parms"),
            "--sync is 'parms' (from --sync): did you mean 'params'? (expected one of grad, "
            "params, post-local, slowmo, diloco, streaming, gossip, none, auto)");
  EXPECT_EQ(fault_of("epochs=0"),
            "--epochs is '0' (from --epochs); expected an integer from 1 to 1000000");
  ConfigValues values = flags({});
  values["momentum"] = {"1", "ENGINE_MOMENTUM"};
  EXPECT_VALUES(fault(values), "--momentum '1' ENGINE_MOMENTUM 0 1");
  EXPECT_CONTAINS(fault({}), "no model: give --model");
  EXPECT_CONTAINS(fault({{"model", {"mlp", "--model"}}}), "no data set: give --dataset");
  EXPECT_EQ(fault_of("color=red"), "unknown option 'color' (from --color)");
}

TEST(RunConfig, EveryChoiceSuggestsTheNearestAndListsAll) {
  for (const tools::OptionSpec& option : tools::train_options()) {
    if (option.type() != tools::OptionSpec::Type::kChoice) continue;
    const std::string first = option.field.choices.front();
    EXPECT_CONTAINS(fault_of({{option.name, first + "x"}}), ": did you mean '" + first + "'?")
        << option.name;
    // What is near to nothing gets no suggestion, only the list.
    const std::string far = fault_of({{option.name, "zzzzzz"}});
    EXPECT_CONTAINS(far, first) << option.name;
    EXPECT_EQ(far.find("did you mean"), std::string::npos) << option.name;
  }
  EXPECT_CONTAINS(fault_of("dataset=tiny"), ": did you mean 'tinyshakespeare'?");
  EXPECT_CONTAINS(fault_of("augment=crop,flop"), ": did you mean 'flip'?");
  for (const char* value : {"augment=crop,crop", "augment=crop,corp", "augment=corp,crop"})
    EXPECT_EQ(fault_of(value).find("did you mean"), std::string::npos) << value;
}

TEST(RunConfig, RefusesWhatThisVersionCannotDo) {
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"sync", "easgd"},
                                                                  {"device", "gpu"},
                                                                  {"dtype", "bf16"},
                                                                  {"normalize", "imagenet"},
                                                                  {"optimizer", "adam"},
                                                                  {"progress", "always"}})
    EXPECT_CONTAINS(fault_of({{name, value}}), "expected one of ") << name;
}

TEST(RunConfig, RefusesEmptyNamesOfFiles) {
  for (const char* name : {"save-dir", "init-from", "metrics", "resume"})
    EXPECT_EQ(fault_of({{name, ""}}), "--" + std::string(name) + " is empty");
  EXPECT_FALSE(run_of("augment=").data.augmentation.any());
}

TEST(RunConfig, RefusesWhatNeedsARunToBeThere) {
  EXPECT_EQ(fault_of("overwrite=true"), "--overwrite requires --save-dir");
  EXPECT_CONTAINS(fault_of("allow-change=optimizer"), "--allow-change optimizer requires --resume");
}

TEST(RunConfig, RefusesValuesOutOfTypeOrRange) {
  const std::pair<const char*, std::vector<const char*>> bad[] = {
      {"epochs", {"1.5", " 1", "1x", "99999999999999999999", ""}},
      {"steps", {"0", ""}},
      {"rank", {""}},
      {"lr", {"nan", "inf", "0", "1e999", ""}},
      {"momentum", {"-0.1"}},
      {"weight-decay", {"-1"}},
      {"clip-grad", {"-1"}},
      {"shuffle", {"maybe"}},
      {"eval-every", {"e", "-1e", "2x"}},
      {"batch-size", {"0", "-8"}},
      {"prefetch", {"0"}},
      {"workers", {"-1"}},
      {"seed", {"-1"}},
      {"timeout", {"0"}},
      {"heartbeat", {"-1"}},
      {"rdzv-timeout", {"1e9"}},
      {"adam-beta1", {"0.5"}},
      {"synthetic-size", {"5"}},
      {"threads", {"-1"}},
      {"bucket-cap-mb", {"0"}},
      {"keep-last", {"-1"}},
      {"model", {"\xff"}},
      {"dataset", {"imagenet"}},
      {"spawn", {"-2", "abc", "2x", " 3", "99999999999999999999"}},
      {"world-size", {"0"}},
      {"local-rank", {"-1"}},
      {"limit", {"-1"}},
      {"log-every", {"x"}}};
  for (const auto& [name, values] : bad)
    for (const char* value : values)
      EXPECT_THROW(run_of({{name, value}}), ConfigError) << name << "=" << value;
  for (const char* shape :
       {"0", "28x", "1000001", "28x28", "28x28x0", "28x28x1x1", "axbxc", "x28x1", "99999x1x1"})
    EXPECT_THROW(run_of({{"dataset", "synthetic"}, {"synthetic-shape", shape}}), ConfigError)
        << shape;
  for (const char* epochs : {"0", "60,30", "30,30", "3,,4", "x"})
    EXPECT_THROW(run_of({{"lr-schedule", "step"}, {"lr-milestones", epochs}}), ConfigError)
        << epochs;
}

// --sync params leaves no part to --reduction-order, whose default is what --average-last needs.
TEST(RunConfig, AnOptionThatPlaysNoPartMeetsNeedsAsItsDefaultDoes) {
  const auto config = run_of("sync=params average-last=1");
  EXPECT_EQ(config.average_last, 1);
  EXPECT_EQ(config.origin.at("reduction-order").source, "not used");
}

TEST(RunConfig, RefusesContradictions) {
  const char* const contradictions[] = {"batch-size=8 batch-size-per-device=8",
                                        "epochs=2 steps=100",
                                        "sync-every=8",
                                        "sync=none sync-every=8",
                                        "sync=params delay-allreduce=true",
                                        "reduction-order=canonical sync=params",
                                        "reduction-order=canonical delay-allreduce=true",
                                        "reduction-order=canonical buffers=average",
                                        "reduction-order=canonical reduction-shards=12",
                                        "reduction-shards=4",
                                        "outer-lr=0.5",
                                        "sync=slowmo outer-lr=0.5",
                                        "sync=diloco slowmo-beta=0.4",
                                        "sync=diloco sync-overlap=1",
                                        "sync=streaming sync-every=4 sync-overlap=4",
                                        "sync=streaming sync-every=4 sync-mixing=0",
                                        "sync=streaming sync-every=4 sync-mixing=1.5",
                                        "sync=streaming sync-every=4 sync-fragments=0",
                                        "sync=streaming sync-schedule=0:4",
                                        "sync=streaming average-state=all",
                                        "sync=params compress=topk",
                                        "sync=diloco compress=bf16",
                                        "sync=slowmo compress=powersgd",
                                        "sync=none compress=int8",
                                        "compress=int8 reduction-order=canonical",
                                        "compress=int8 sparse-bits=4",
                                        "compress=sparse sparse-decay=0.9",
                                        "compress=sparse sparse-momentum=0.9",
                                        "compress=sparse sparse-momentum=0.9 optimizer=adamw",
                                        "sync=params compress=sparse sparse-warmup=5",
                                        "sync=params compress=sparse sparse-momentum=0.9",
                                        "sparse-ratio=0.1",
                                        "compress=bf16 topk-ratio=0.5",
                                        "average-state=all",
                                        "sync=params average-state=momentum momentum=0",
                                        "sync-island=host",
                                        "sync=post-local sync-every=8",
                                        "sync=params sync-schedule=0:4 sync-every=8",
                                        "sync=params sync-schedule=0:4 sync-warmup=8",
                                        "sync=params average-buffers=true buffers=rank0",
                                        "rank=0",
                                        "rank=2 world-size=2",
                                        "spawn=2 rank=0 world-size=2",
                                        "spawn=2 world-size=2",
                                        "optimizer=adamw momentum=0.5",
                                        "adam-beta1=0.5",
                                        "nesterov=true momentum=0",
                                        "lr-schedule=step",
                                        "lr-milestones=3",
                                        "lr-schedule=cosine lr-min=1",
                                        "save-every=5",
                                        "save-rank-models=true",
                                        "keep-best=loss",
                                        "keep-best=loss save-dir=run eval-every=0",
                                        "early-stop=2 eval-every=0",
                                        "resume=auto",
                                        "resume=a.ckpt init-from=b.ckpt",
                                        "spawn=2 init-method=tcp://n1:29500",
                                        "elastic-batch=scale",
                                        "elastic=1:4 elastic-batch=scale batch-size=30",
                                        "elastic=1:4 elastic-batch=scale reduction-order=canonical",
                                        "elastic=1:4 uneven=drop"};
  for (const char* options : contradictions) EXPECT_THROW(run_of(options), ConfigError) << options;
  EXPECT_VALUES(fault_of(contradictions[0]),
                "--batch-size '8' --batch-size --batch-size-per-device '8' "
                "--batch-size-per-device");
  EXPECT_EQ(
      fault_of(contradictions[2]),
      "--sync-every requires --sync params|post-local|slowmo|diloco|streaming|gossip|auto; --sync "
      "is 'grad' (from default)");
}

TEST(RunConfig, ElasticJobsTakeEveryPolicyThatAverages) {
  for (const char* sync : {"grad", "params", "slowmo", "diloco", "streaming", "gossip"})
    EXPECT_NO_THROW(run_of({{"elastic", "1:4"}, {"sync", sync}})) << sync;
  EXPECT_THROW(run_of({{"elastic", "1:4"}, {"sync", "none"}}), ConfigError);
}

TEST(RunConfig, AnOptionThatNeedsAnotherIsCheckedByItsPresenceNotByItsValue) {
  for (const char* padding : {"4", "5"})  // 4 is the default
    EXPECT_EQ(fault_of({{"augment", "flip"}, {"crop-padding", padding}}),
              "--crop-padding requires --augment crop; --augment is 'flip' (from --augment)");
  EXPECT_EQ(fault_of("cutout-size=16"), "--cutout-size requires --augment cutout");
  EXPECT_EQ(fault_of("keep-last=3"), "--keep-last requires --save-dir");
  EXPECT_VALUES(fault_of("log-gpu=5"), "--log-gpu --save-dir --metrics FILE");
  EXPECT_EQ(run_of("log-gpu=5 save-dir=run").log_gpu, 5);
  EXPECT_EQ(fault_of("compress=bf16 topk-ratio=0.01"),
            "--topk-ratio requires --compress topk; --compress is 'bf16' (from --compress)");
  ConfigValues values = flags({});
  values["momentum"] = {"0.9", "ENGINE_MOMENTUM"};
  values["optimizer"] = {"adamw", "run.toml:2"};
  EXPECT_EQ(fault(values),
            "--momentum (from ENGINE_MOMENTUM) requires --optimizer sgd; --optimizer is 'adamw' "
            "(from run.toml:2)");
  EXPECT_VALUES(fault_of("resume=auto"), "--resume auto --save-dir");
  EXPECT_EQ(fault_of("lr-schedule=step"), "--lr-schedule step requires --lr-milestones (30,60)");

  const tools::RunConfig cropped = run_of("augment=flip,crop crop-padding=4");
  EXPECT_EQ(cropped.data.augmentation.crop_padding, 4);
  // Unset where it plays no part, also in what a checkpoint keeps.
  const tools::RunConfig flipped = run_of("augment=flip");
  EXPECT_EQ(flipped.origin.at("crop-padding").source, "not used");
  EXPECT_EQ(flipped.data.augmentation.crop_padding, 4);
}

TEST(RunConfig, EarlyStopIsPatienceAndPerhapsTheLeastImprovement) {
  const auto stop = [](const char* text) { return run_of({{"early-stop", text}}); };
  EXPECT_EQ(run_of({}).best.patience, 0);
  EXPECT_EQ(stop("5").best.patience, 5);
  EXPECT_EQ(stop("5").best.min_delta, 0);
  EXPECT_EQ(stop("1:0.25").best.patience, 1);
  EXPECT_EQ(stop("1:0.25").best.min_delta, 0.25);
  for (const char* text : {"0", "-1", "x", "2:", ":1", "2:-1", "2:x", "2:1:1", "2:inf"})
    EXPECT_THROW(stop(text), ConfigError) << text;
  EXPECT_VALUES(fault_of("early-stop=2 eval-every=0"), "--early-stop 2 --eval-every 0");
  EXPECT_VALUES(fault_of("keep-best=accuracy"), "--keep-best accuracy --save-dir");
  EXPECT_EQ(run_of("keep-best=loss early-stop=2").best.keep.measure, engine::Measure::kLoss);
}

TEST(RunConfig, WhatIsSwitchedOffNeedsNothing) {
  for (const ConfigValues& values :
       {flags("pin-memory=false non-blocking=false"), flags("outer-nesterov=false"),
        flags("sync=params compress=none"), flags("optimizer=adamw nesterov=false"),
        flags("save-async=false")})
    EXPECT_NO_THROW(tools::resolve_run_config(values));
}

TEST(RunConfig, ListenAddresses) {
  const auto where = [](const char* text) {
    const auto address = run_of({{"prometheus", text}}).prometheus;
    return address ? address->address + " " + std::to_string(address->port) : "none";
  };
  EXPECT_EQ(where(""), "none");
  for (const char* own : {"9400", ":9400", "localhost:9400", "127.0.0.1:9400"})
    EXPECT_EQ(where(own), "127.0.0.1 9400") << own;
  EXPECT_EQ(where("0.0.0.0:0"), "0.0.0.0 0");
  EXPECT_EQ(where("[::]:65535"), ":: 65535");
  for (const std::string none : {":", "a", "9400:", "1.2.3:1", "[::1]", "::1:1", "[127.0.0.1]:1",
                                 "1:65536", ":-1", "0.0.0.0:9400 ", "host:1"})
    EXPECT_VALUES(fault_of({{"prometheus", none}}), "--prometheus '" + none + "' --prometheus");
}

TEST(RunConfig, Devices) {
  using Names = std::vector<std::string>;
  const auto names = [](const tools::RunConfig& config) {
    Names result;
    for (const engine::Device device : config.compute.device.devices)
      result.push_back(engine::to_string(device));
    return result;
  };
  const auto devices = [&](const char* list) { return names(run_of({{"gpu-devices", list}})); };
  EXPECT_EQ(devices("0 1"), (Names{"cuda:0", "cuda:1"}));
  EXPECT_EQ(devices("3,1"), (Names{"cuda:3", "cuda:1"}));
  EXPECT_EQ(devices("0, 2-4 7"), (Names{"cuda:0", "cuda:2", "cuda:3", "cuda:4", "cuda:7"}));
  EXPECT_EQ(devices("none"), Names{});
  EXPECT_EQ(to_string(run_of("gpu-devices=none").compute.device.device), "cpu");
  EXPECT_EQ(run_of("gpu-devices=0-2").origin.at("gpu-devices").value, "0,1,2");
  EXPECT_EQ(names(run_of("device=cuda gpu-devices=1")), Names{"cuda:1"});
  EXPECT_EQ(names(run_of("devices=cuda:1,cuda:0")), (Names{"cuda:1", "cuda:0"}));
  for (const char* device : {"auto", "cpu", "cuda", "cuda:0", "cuda:31"})
    EXPECT_EQ(to_string(run_of({{"device", device}}).compute.device.device), device);
  for (const std::string list : {"0 0", "0,1,1", "0-2,1", "-1", "0-", "2-1", "x", ",", "0,,1", "0,",
                                 "0 none", "1024", "0.5", " "})
    EXPECT_VALUES(fault_of({{"gpu-devices", list}}),
                  "--gpu-devices '" + list + "' '0 1' '0,1' '0-3' none");
  for (const char* device :
       {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:01", "cuda:0,1", "cpu:0", "CUDA"})
    EXPECT_VALUES(fault_of({{"device", device}}), "auto cpu cuda cuda:N") << device;
  for (const std::string list : {"cuda:0,cpu:0", "cpu:0,cuda:1", "cuda:0,cuda:0", "cuda"})
    EXPECT_VALUES(fault_of({{"devices", list}}), "--devices '" + list + "' --devices");
}

TEST(RunConfig, DevicesAreSaidOnce) {
  EXPECT_VALUES(fault_of("device=cpu gpu-devices=0,1"),
                "--device 'cpu' --device --gpu-devices '0,1' --gpu-devices");
  for (const auto& [device, list] : std::initializer_list<std::pair<const char*, const char*>>{
           {"cuda:0", "0"}, {"cuda", "none"}, {"cuda:1", "none"}, {"cpu", "0"}})
    EXPECT_CONTAINS(fault_of({{"device", device}, {"gpu-devices", list}}), "contradict each other")
        << device << " " << list;
  EXPECT_CONTAINS(fault_of("device=cuda devices=cpu:0,cpu:1"), "contradict");
  EXPECT_CONTAINS(fault_of("gpu-devices=0 devices=cuda:0"), "exclude");
  // The stronger source wins.
  ConfigValues values = flags("gpu-devices=0,1");
  values["device"] = {"cpu", "run.toml:3"};
  EXPECT_EQ(tools::resolve_run_config(values).compute.device.devices.size(), 2u);
  EXPECT_EQ(to_string(tools::resolve_run_config(values).compute.device.device), "auto");
  values = flags("device=cpu");
  values["gpu-devices"] = {"0,1", "ENGINE_GPU_DEVICES"};
  EXPECT_TRUE(tools::resolve_run_config(values).compute.device.devices.empty());
  EXPECT_EQ(to_string(tools::resolve_run_config(values).compute.device.device), "cpu");
}

TEST(RunConfig, TablesAreReadAsTheOptionsSay) {
  const tools::RunConfig plain = run_of("dataset=csv");
  EXPECT_EQ(plain.data.set.csv.decimal, io::CsvDecimal::kAuto);
  EXPECT_EQ(plain.data.set.csv.missing, "auto");
  const tools::RunConfig own = run_of("dataset=csv csv-decimal=comma csv-missing=NA,-999");
  EXPECT_EQ(own.data.set.csv.decimal, io::CsvDecimal::kComma);
  EXPECT_EQ(own.data.set.csv.missing, "NA,-999");
  EXPECT_CONTAINS(fault_of("csv-decimal=dot dataset=csv"), "auto, point, comma");
  EXPECT_CONTAINS(fault_of("csv-missing=NA"), "requires --dataset csv");
  EXPECT_EQ(fault_of("csv-missing= dataset=csv"),
            "--csv-missing is '' (from --csv-missing); expected auto|empty|A,B");
}

TEST(RunConfig, Precision) {
  const auto scale = [](const char* amp, const char* text) {
    return engine::to_string(
        tools::resolve_run_config(text == nullptr ? flags({{"amp", amp}})
                                                  : flags({{"amp", amp}, {"loss-scale", text}}))
            .compute.loss_scale);
  };
  for (const char* amp : {"off", "tf32", "bf16"}) EXPECT_EQ(scale(amp, nullptr), "off") << amp;
  for (const char* amp : {"O1", "O2"}) EXPECT_EQ(scale(amp, nullptr), "dynamic") << amp;
  EXPECT_EQ(scale("O2", "128"), "128");
  EXPECT_EQ(scale("bf16", "dynamic"), "dynamic");
  for (const std::string s : {"0", "-2", "inf", "nan", "1e99", "off", "x"})
    EXPECT_VALUES(fault_of({{"amp", "O1"}, {"loss-scale", s}}),
                  "--loss-scale '" + s + "' dynamic, 0");
  EXPECT_VALUES(fault_of("loss-scale=128"), "--loss-scale 128 --amp bf16|O1|O2 CUDA");
  EXPECT_CONTAINS(fault_of("amp=fp16"), "expected one of off, tf32, bf16, O1, O2");

  for (const ConfigValues& cpu : {flags("amp=O1 device=cpu"), flags("amp=tf32 gpu-devices=none"),
                                  flags("amp=O2 devices=cpu:0,cpu:1")})
    EXPECT_CONTAINS(fault(cpu), "requires --device cuda: CPUs compute off and bf16");
  EXPECT_EQ(run_of("amp=bf16 device=cpu").compute.precision.half, engine::DType::kBF16);
  EXPECT_VALUES(fault_of("amp=bf16 device=cpu loss-scale=128"), "--loss-scale 128 --device cuda");
  EXPECT_EQ(run_of("dtype=f64 device=cuda:0").compute.dtype, engine::DType::kF64);
  EXPECT_CONTAINS(fault_of("dtype=f64 amp=O1"), "expected f32 beside --amp O1");
  EXPECT_EQ(to_string(run_of("dtype=f64").compute.device.device), "auto");
  EXPECT_EQ(run_of("dtype=f64").compute.device.cpu_only, std::nullopt);
  EXPECT_EQ(run_of("amp=O1 loss-scale=128").compute.device.cuda_only, "--amp O1");
  EXPECT_EQ(run_of("amp=bf16").compute.device.cuda_only, std::nullopt);

  const tools::RunConfig plain = run_of({});
  EXPECT_TRUE(plain.compute.graph && plain.compute.pinned && plain.compute.non_blocking);
  const tools::RunConfig simple = run_of("cuda-graph=off pin-memory=false");
  EXPECT_FALSE(simple.compute.graph || simple.compute.pinned || simple.compute.non_blocking);

  EXPECT_EQ(plain.compute.convolutions, engine::Convolutions::kAuto);
  EXPECT_EQ(run_of("conv=direct").compute.convolutions, engine::Convolutions::kDirect);
  EXPECT_CONTAINS(fault_of("conv=winograd"), "auto");
}

TEST(RunConfig, SchedulesOfAveraging) {
  const tools::RunConfig config = run_of("sync=post-local sync-schedule=10:1,1000:8");
  ASSERT_EQ(config.averaging.phases.size(), 2u);
  EXPECT_EQ(config.averaging.phases[1].from, 1000);
  EXPECT_EQ(config.averaging.phases[1].every, 8);
  EXPECT_EQ(config.origin.at("sync-every").source, "not used");
  for (const char* schedule : {"5:1", "0:0", "0:-1", "0:1,0:2", "0:1,8:2,8:3", "0:1,5:2,4:3", "0",
                               "0:1:2", "0:x", ":", "0:1,", "1"})
    EXPECT_THROW(run_of({{"sync", "params"}, {"sync-schedule", schedule}}), ConfigError)
        << schedule;
  EXPECT_VALUES(fault_of("sync=params sync-schedule=0:1,8:4,8:2"),
                "--sync-schedule '0:1,8:4,8:2' --sync-schedule STEP:K,STEP:K,... 0 1 0:1,1000:8");
  EXPECT_EQ(fault_of("sync=params sync-every=0")
                .find("--sync-every is '0' (from --sync-every); expected"),
            0u);
  EXPECT_VALUES(fault_of("sync=post-local"), "--sync post-local --sync-warmup 0 --sync-schedule 0");
}

TEST(RunConfig, RangesOfAveraging) {
  for (const auto& [sync, name, value] :
       std::initializer_list<std::array<const char*, 3>>{{"diloco", "outer-lr", "0"},
                                                         {"diloco", "outer-momentum", "1"},
                                                         {"slowmo", "slowmo-beta", "-0.1"},
                                                         {"slowmo", "slowmo-alpha", "0"},
                                                         {"diloco", "outer-lr", "some"},
                                                         {"params", "average-state", "some"},
                                                         {"params", "average-state", "momentum:0"},
                                                         {"params", "average-state", "momentum:"},
                                                         {"params", "average-state", "second:2"}})
    EXPECT_THROW(run_of({{"sync", sync}, {name, value}}), ConfigError) << name << "=" << value;
  EXPECT_VALUES(fault_of("sync=diloco outer-momentum=1"), "--outer-momentum '1' 0 1");
  EXPECT_VALUES(fault_of("sync=diloco outer-momentum=some"), "--outer-momentum 'some' auto, 0 1");
  EXPECT_VALUES(
      fault_of("sync=params average-state=momentum:2,momentum:3"),
      "--average-state 'momentum:2,momentum:3' none, momentum, all, momentum:P,second:Q 1");
  EXPECT_VALUES(fault_of("sync=params average-state=second:2"),
                "--average-state second:2 adamw, second:Q");
  for (const char* optimizer : {"adamw", "muon"})
    for (const char* state : {"momentum", "momentum:3", "momentum:3,second:6"})
      EXPECT_VALUES(
          fault_of(std::string("sync=params optimizer=") + optimizer + " average-state=" + state),
          "--average-state '" + std::string(state) + "' momentum:P,second:Q all: " + optimizer);
  for (const char* ratio : {"0", "1.01", "-1"})
    EXPECT_THROW(run_of({{"compress", "topk"}, {"topk-ratio", ratio}}), ConfigError) << ratio;
  EXPECT_THROW(run_of("compress=powersgd powersgd-rank=0"), ConfigError);
  EXPECT_EQ(fault_of("compress=topk sync=diloco"), "--compress topk requires --sync grad");
  for (const std::string code : {"bf16", "topk", "powersgd"})
    EXPECT_EQ(fault_of("sync=gossip compress=" + code),
              "--compress " + code + " requires --sync grad; --sync is 'gossip' (from --sync)");
  EXPECT_EQ(fault_of("sync=gossip compress=int8"),
            "--compress int8 requires --sync grad|params|post-local|slowmo|diloco|streaming|auto; "
            "--sync is 'gossip' (from --sync)");
  for (const char* value : {"sparse-ratio=0", "sparse-ratio=1.1", "sparse-bits=3",
                            "sparse-warmup=-1", "sparse-momentum=1"})
    EXPECT_THROW(run_of(std::string("compress=sparse momentum=0 ") + value), ConfigError) << value;
  EXPECT_THROW(run_of("compress=sparse sync=diloco sparse-decay=0"), ConfigError);
  EXPECT_EQ(run_of("compress=sparse sync=diloco sparse-decay=1").averaging.sparse.decay, 1);
}

TEST(RunConfig, OuterValuesAndPeriodsOfMoments) {
  EXPECT_FALSE(run_of("sync=diloco").averaging.diloco.lr.has_value());
  EXPECT_FALSE(run_of("sync=diloco outer-momentum=auto").averaging.diloco.momentum.has_value());
  EXPECT_TRUE(run_of("sync=diloco").averaging.diloco.nesterov);
  EXPECT_FALSE(run_of("sync=diloco outer-momentum=0").averaging.diloco.nesterov);
  EXPECT_EQ(run_of("sync=diloco outer-lr=0.50").averaging.diloco.lr, 0.5);
  const auto states =
      run_of("optimizer=adamw sync=params average-state=second:3,momentum:6").averaging.states;
  EXPECT_EQ(states.first, 6);
  EXPECT_EQ(states.second, 3);
  EXPECT_FALSE(states.all);
  EXPECT_EQ(run_of("sync=params average-state=momentum").averaging.states.first, 1);
  EXPECT_TRUE(run_of("sync=params average-state=all").averaging.states.all);
}

TEST(RunConfig, TheStrongerSourceDecidesAContradiction) {
  ConfigValues values = flags("steps=100 optimizer=adamw");
  values["epochs"] = {"5", "run.toml:1"};
  values["momentum"] = {"0.5", "run.toml:2"};
  values["batch-size"] = {"64", "run.toml:3"};
  values["batch-size-per-device"] = {"8", "ENGINE_BATCH_SIZE_PER_DEVICE"};
  const tools::RunConfig config = tools::resolve_run_config(values);
  EXPECT_EQ(config.steps, 100);
  EXPECT_FALSE(config.update.settings.contains("momentum"));
  EXPECT_EQ(config.data.batch_of_rank, 8);
}

TEST(RunConfig, TomlReadsBackToTheSameRun) {
  const test_support::TemporaryDirectory folder;
  const std::vector<ConfigValues> runs = {
      flags({}),
      flags({{"optimizer", "adamw"},
             {"steps", "7"},
             {"lr", ".001"},
             {"job-id", "a \"b\" \\ \n \x7f \xc3\xa9"}}),
      flags("sync=params sync-every=16 batch-size-per-device=32 save-dir=x lr=1e-5"),
      flags("lr-schedule=step lr-milestones=3,9 spawn=2 shuffle=0"),
      flags("sync=params sync-schedule=0:1,100:16 average-state=all"),
      flags("sync=diloco sync-every=16 outer-nesterov=false sync-island=host"),
      flags("sync=diloco sync-every=16 outer-lr=0.5 average-state=momentum:3"),
      flags("sync=streaming sync-every=16 sync-fragments=3 sync-overlap=2 sync-mixing=1"),
      flags("lr-schedule=cosine lr-min=1e-4 lr=12345678.9e-3 rank=0 world-size=2"),
  };
  for (const ConfigValues& run : runs) {
    const tools::RunConfig config = tools::resolve_run_config(run);
    const std::string text = tools::to_toml(config.origin);
    test_support::write_text(folder / "saved.toml", text);
    ConfigValues again;
    tools::apply_config_file(folder / "saved.toml", again);
    const tools::RunConfig same = tools::resolve_run_config(again);
    EXPECT_EQ(tools::to_toml(same.origin), text);
    EXPECT_EQ(tools::agreed_settings(same.origin), tools::agreed_settings(config.origin));
    EXPECT_EQ(same.update.rate.base, config.update.rate.base);
    EXPECT_EQ(same.identity.job_id, config.identity.job_id);
  }
}

TEST(RunConfig, RanksAgreeOnWhatShapesTheRun) {
  const auto settings = [](const NamedValues& given) {
    return tools::agreed_settings(run_of(given).origin);
  };
  const auto base = settings({});
  EXPECT_EQ(settings("threads=3 metrics=m.jsonl data-dir=/d timeout=5"), base);
  EXPECT_EQ(settings("rank=1 world-size=2"), base);
  EXPECT_EQ(settings("lr=0.0500 epochs=01"), base);
  EXPECT_EQ(settings("save-dir=a"), settings("save-dir=b"));
  EXPECT_NE(settings("save-dir=a"), base);
  EXPECT_NE(settings("seed=1"), base);
  EXPECT_NE(settings("lr=0.051"), base);
  EXPECT_NE(settings("model=convnet"), base);
  EXPECT_NE(settings("sync=none"), base);
  const std::pair<std::string, std::string> batch{"--batch-size", "64"};
  EXPECT_EQ(std::ranges::count(settings("batch-size=64"), batch), 1);
  EXPECT_EQ(std::ranges::count(base, batch), 0);
}

TEST(RunConfig, LongSettingsAreCutAndStillDiffer) {
  const auto settings = [](const std::string& model) {
    return tools::agreed_settings(run_of({{"model", model}}).origin);
  };
  const std::string path(5000, 'p');
  std::size_t bytes = 0;
  for (const auto& [name, value] : settings(path)) bytes += name.size() + value.size();
  EXPECT_LT(bytes, 16'000u);
  EXPECT_EQ(settings(path), settings(path));
  EXPECT_NE(settings(path + "a"), settings(path + "b"));
}

}  // namespace
