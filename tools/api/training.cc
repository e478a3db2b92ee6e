// Implements a training run of `engine train` without its command line: the same options, session
// and folder.
#include "engine/training.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <limits>
#include <utility>

#include "engine/averaging/math/state_home.h"
#include "engine/core/error.h"
#include "engine/train/saving/weights.h"
#include "io/base/digests/digest.h"
#include "io/base/files/io_error.h"
#include "io/base/text/nearest.h"
#include "io/data/images/channel_statistics.h"
#include "tools/api/group_impl.h"
#include "tools/api/model_impl.h"
#include "tools/api/translated.h"
#include "tools/folder/output_paths.h"
#include "tools/folder/run_reference.h"
#include "tools/launch/machine/thread_choice.h"
#include "tools/options/input/config_sources.h"
#include "tools/options/table/run_config.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/report/text/session_text.h"
#include "tools/run/choices/agreement.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/choices/train_arguments.h"
#include "tools/run/data/session_data.h"
#include "tools/run/rank/rank_run.h"
#include "tools/run/session/run_views.h"

namespace engine::api {
namespace {

constexpr const char* kArrays = "arrays";          // the name of use()'s data set
constexpr const char* kDefinition = "model.toml";  // the name of define_model()'s model

// Returns why an option of `engine train` has no use here; "": it has one.
std::string why_useless(const tools::OptionSpec& option) {
  const std::string_view name = option.name;
  if (std::string_view(option.group) == "group")
    return "the group is joined by Group::join() or run_threads(), which take its options";
  if (name == "devices" || name == "gpu-devices")
    return "each rank has one device: run_threads(), and the option device";
  if (std::string_view(option.group) == "preempt") return "a program stops it with stop()";
  for (const char* of_program : {"flight-dir", "progress", "prometheus", "quiet", "verbose",
                                 "log-file", "log-format", "log-time", "log-ranks"})
    if (name == of_program) return "it belongs to the program engine";
  return "";
}

bool is_of_data_set(std::string_view name) {
  for (const char* other : {"dataset", "data-dir", "stage", "limit", "annotations"})
    if (name == other) return true;
  return name.starts_with("synthetic-");
}

std::int64_t count_of(const std::array<std::int64_t, 3>& shape, const std::string& what) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 1 || extent > kMost / count)
      throw io::DataError(what + ": the shape of a sample is " + std::to_string(shape[0]) + "x" +
                          std::to_string(shape[1]) + "x" + std::to_string(shape[2]) +
                          ", expected height, width and channels, each 1 or more, and at most " +
                          std::to_string(kMost) + " numbers");
    count *= extent;
  }
  return count;
}

io::Dataset dataset_of(Samples samples, const std::string& what) {
  const std::int64_t items = count_of(samples.shape, what);
  const bool pixels = !samples.pixels.empty();
  if (pixels && !samples.values.empty())
    throw io::DataError(what + ": both values and pixels are given, expected one of them");
  const std::size_t found = pixels ? samples.pixels.size() : samples.values.size(),
                    wanted = samples.labels.size() * static_cast<std::size_t>(items);
  if (found != wanted)
    throw io::DataError(what + ": " + std::to_string(found) + (pixels ? " pixels" : " values") +
                        " are given, expected " + std::to_string(samples.labels.size()) +
                        " labels x " + std::to_string(items) + " = " + std::to_string(wanted));
  if (samples.classes < 2)
    throw io::DataError(what + ": the number of classes is " + std::to_string(samples.classes) +
                        ", expected 2 or more");
  for (std::size_t i = 0; i < samples.labels.size(); ++i)
    if (samples.labels[i] < 0 || samples.labels[i] >= samples.classes)
      throw io::DataError(what + ": the label of sample " + std::to_string(i) + " is " +
                          std::to_string(samples.labels[i]) + ", expected 0.." +
                          std::to_string(samples.classes - 1));
  io::Dataset set{.name = kArrays};
  if (pixels)
    set.samples =
        io::ImageSamples{.format = {.shape = samples.shape}, .pixels = std::move(samples.pixels)};
  else
    set.samples = io::FeatureSamples{.extents = samples.shape, .values = std::move(samples.values)};
  set.labels = io::ClassLabels{.ids = std::move(samples.labels), .count = samples.classes};
  return set;
}

Progress progress_of(const engine::TrainProgress& p) {
  return {p.global_step, p.epoch, p.step_in_epoch, p.samples_seen};
}

struct Callbacks {
  std::function<void(const Progress&)> step;
  std::function<void(const StepReport&)> report;
  std::function<void(const Evaluation&)> evaluation;
  std::function<void(const Progress&, const std::string&)> save;
};

// Calls the program's callbacks, and stores the last evaluation.
class CallbackObserver : public engine::TrainObserver {
 public:
  CallbackObserver(const Callbacks& callbacks, std::optional<Evaluation>& last)
      : callbacks_(callbacks), last_(last) {}
  void on_step(const engine::TrainProgress& progress) override {
    if (callbacks_.step) call_out(callbacks_.step, progress_of(progress));
  }
  void on_report(const engine::StepReport& r) override {
    if (!callbacks_.report) return;
    call_out(callbacks_.report,
             StepReport{progress_of(r.progress), r.loss,
                        r.train_accuracy.value_or(std::numeric_limits<double>::quiet_NaN()), r.lr,
                        r.samples_per_s});
  }
  void on_eval(const engine::EvalReport& r) override {
    const double accuracy =
        r.has_classes() ? r.accuracy() : std::numeric_limits<double>::quiet_NaN();
    const Evaluation evaluation{progress_of(r.progress), r.loss, accuracy, r.samples, r.weights};
    if (evaluation.weights == "model") last_ = evaluation;
    if (callbacks_.evaluation) call_out(callbacks_.evaluation, evaluation);
  }
  void on_save(const engine::TrainProgress& progress, const std::string& path) override {
    if (callbacks_.save) call_out(callbacks_.save, progress_of(progress), path);
  }

 private:
  const Callbacks& callbacks_;
  std::optional<Evaluation>& last_;
};

// The information that is needed to rebuild a model as it was trained.
struct TrainedState {
  std::string name, definition;
  ModelShape shape;
  std::vector<io::NamedArray> arrays;
  std::optional<io::ImageFormat> images;  // the format of the images, if it was trained on images
  io::Normalization normalization = io::Normalization::kUnit;
  int threads = 0;
  engine::Device device = {};
};

}  // namespace

struct Training::Impl {
  tools::RunConfig resolve() const;
  TrainingResult run(backends::Group& group);
  void keep_model(const tools::RunConfig& config, tools::TrainSession& session);
  const TrainedState& trained_state(const std::string& function) const;

  tools::ConfigValues values;
  std::vector<std::string> files;  // option files
  std::string definition;
  std::shared_ptr<tools::LoadedData> data;  // null: the data set from the options
  Callbacks callbacks;
  std::atomic<int> stop_signal{0};
  std::optional<TrainedState> trained;
};

tools::RunConfig Training::Impl::resolve() const {
  tools::ConfigValues all = values;
  if (!definition.empty()) all["model"] = {kDefinition, "--model"};
  if (data) all["dataset"] = {"synthetic", "--dataset"};  // a placeholder for the checks
  for (const std::string& file : files) tools::apply_config_file(file, all);
  std::string model_definition = tools::take_resumed_run(all);
  // Ignore group options from files and runs, which are set elsewhere.
  std::erase_if(all, [](const auto& entry) {
    const tools::OptionSpec* option = tools::find_option(entry.first);
    return option != nullptr && !why_useless(*option).empty();
  });
  if (data)
    std::erase_if(all, [](const auto& entry) {
      return entry.first != "dataset" && is_of_data_set(entry.first);
    });
  tools::take_vocabulary(all);
  tools::apply_defaults(all);
  tools::RunConfig config = tools::resolve_run_config(all);
  if (!definition.empty()) model_definition = definition;
  if (model_definition.empty()) model_definition = models::model_definition(config.model.name);
  config.model.definition = model_definition;
  if (data) {
    config.data.set.name = kArrays;
    config.data.set.directory = std::string("data/") + kArrays;
    std::erase_if(config.origin, [](const auto& entry) { return is_of_data_set(entry.first); });
    config.origin["dataset"] = {kArrays, "use()"};
  }
  tools::check_threads(config.compute.threads);
  return config;
}

void Training::Impl::keep_model(const tools::RunConfig& config, tools::TrainSession& session) {
  const io::Dataset& train = session.data().train();
  TrainedState state{.name = config.model.name,
                     .definition = config.model.definition,
                     .shape = {},
                     .arrays = {},
                     .images = {},
                     .normalization = session.data().normalization(),
                     .threads = config.compute.threads,
                     .device = session.facts().ranks.device};
  const engine::Shape shape = tools::sample_shape(train);
  for (int d = 0; d < shape.rank(); ++d) state.shape.sample.push_back(shape[d]);
  state.shape.classes = train.classes();
  if (const auto* images = train.find<io::ImageSamples>()) state.images = images->format;
  const engine::HostView view(session.state().home, engine::Access::kRead);
  state.arrays = engine::export_state(session.state().model, {});
  trained = std::move(state);
}

const TrainedState& Training::Impl::trained_state(const std::string& function) const {
  if (!trained) throw io::ConfigError(function + "(): nothing has been trained yet, run() first");
  return *trained;
}

namespace {

// All ranks agree on the options before any of them creates a folder or loads data.
void require_equal_options(const tools::RunConfig& config, backends::Group& group,
                           backends::Communicator& control) {
  backends::Settings settings = tools::agreed_settings(config.origin);
  if (!config.model.definition.empty())
    settings.emplace_back("digest of the model's layers",
                          base::hex_text(base::short_digest_of(config.model.definition)));
  tools::require_equal(group, control, settings, "the ranks have different options");
}

}  // namespace

TrainingResult Training::Impl::run(backends::Group& group) {
  const tools::RunConfig config = resolve();
  if (group.rank() == 0) {
    tools::check_output_path("metrics", config.metrics, config.keeping.directory);
    tools::check_views(config, /*joins=*/false);
  }
  auto control = tools::host_communicator(group);
  require_equal_options(config, group, *control);

  tools::RankRun run({config, "a program (engine/training.h)", stop_signal, data}, group,
                     std::move(control));
  const tools::SessionFacts& facts = run.start();
  run.begin();
  TrainingResult result;
  result.folder = run.folder();
  result.description = tools::start_line(facts, ENGINE_VERSION);
  if (run.is_root()) {
    for (const std::string& warning : tools::data_warnings(facts))
      tools::print_notice("warning: " + warning);
    if (!facts.ranks.processors.empty()) tools::print_notice(facts.ranks.processors);
    for (const std::string& line : run.sync_lines()) tools::print_notice(line);
  }
  run.add_records(/*page=*/nullptr);
  run.add_observer(std::make_unique<CallbackObserver>(callbacks, result.evaluation));

  engine::TrainResult ended;
  ended.progress = run.session().state().progress;
  if (!facts.is_complete())
    ended = run.train();
  else if (run.is_root())
    tools::print_notice(tools::completion_text(facts));
  run.finish_trace(ended);
  static_cast<void>(run.save_rank_model());
  keep_model(config, run.session());
  result.progress = progress_of(ended.progress);
  result.seconds = ended.seconds;
  result.stopped = ended.signal != 0;
  result.stopped_early = ended.stopped_early;
  return result;
}

Training::Training() : impl_(std::make_unique<Impl>()) {}
Training::Training(Training&&) noexcept = default;
Training& Training::operator=(Training&&) noexcept = default;
Training::~Training() = default;

Training& Training::set(const std::string& option, const std::string& value) {
  return translated([&]() -> Training& {
    const tools::OptionSpec* found = tools::find_option(option);
    if (found == nullptr) {
      std::vector<std::string> names;
      for (const tools::OptionSpec& known : tools::train_options()) names.push_back(known.name);
      throw io::ConfigError("unknown option '" + option + "'" + base::did_you_mean(option, names) +
                            " (engine train --help all lists them)");
    }
    const std::string name = found->name;
    if (const std::string why = why_useless(*found); !why.empty())
      throw io::ConfigError("option " + name + " has no use here: " + why);
    if (impl_->data && is_of_data_set(name))
      throw io::ConfigError("option " + name + " and use() exclude each other");
    if (!impl_->definition.empty() && name == "model")
      throw io::ConfigError("option model and define_model() exclude each other");
    impl_->values[name] = {value, "--" + name};
    return *this;
  });
}

Training& Training::set_number(const std::string& option, double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return set(option, std::string(text, end));
}

Training& Training::read_options(const std::string& path) {
  return translated([&]() -> Training& {
    tools::ConfigValues values;
    tools::apply_config_file(path, values);  // reports an error in the file now
    impl_->files.push_back(path);
    return *this;
  });
}

Training& Training::define_model(const std::string& toml) {
  return translated([&]() -> Training& {
    if (toml.empty()) throw io::ConfigError("define_model: the list of layers is empty");
    if (impl_->values.contains("model"))
      throw io::ConfigError("option model and define_model() exclude each other");
    impl_->definition = toml;
    return *this;
  });
}

Training& Training::use(Samples train, Samples test) {
  return translated([&]() -> Training& {
    for (const auto& entry : impl_->values)
      if (is_of_data_set(entry.first))
        throw io::ConfigError("option " + entry.first + " and use() exclude each other");
    auto data = std::make_shared<tools::LoadedData>();
    if (test.labels.empty() && test.values.empty() && test.pixels.empty()) {
      test.shape = train.shape;
      test.classes = train.classes;
    }
    if (test.shape != train.shape || test.classes != train.classes ||
        (!test.labels.empty() && test.pixels.empty() != train.pixels.empty()))
      throw io::DataError(
          "use: the test samples differ from the training samples in shape, "
          "classes or kind (values, pixels)");
    data->splits.train = dataset_of(std::move(train), "training samples");
    data->splits.test = dataset_of(std::move(test), "test samples");
    if (data->splits.test.size() == 0) data->splits.test = data->splits.train.like();
    if (data->splits.train.size() == 0)
      throw io::DataError("use: found no training samples, expected 1 or more");
    if (auto* images = data->splits.train.find<io::ImageSamples>()) {
      io::measure_channels(images->pixels, images->format);
      io::ImageFormat& test_format = data->splits.test.as<io::ImageSamples>().format;
      test_format.mean = images->format.mean;
      test_format.deviation = images->format.deviation;
    }
    impl_->data = std::move(data);
    return *this;
  });
}

Training& Training::on_step(std::function<void(const Progress&)> callback) {
  impl_->callbacks.step = std::move(callback);
  return *this;
}
Training& Training::on_report(std::function<void(const StepReport&)> callback) {
  impl_->callbacks.report = std::move(callback);
  return *this;
}
Training& Training::on_evaluation(std::function<void(const Evaluation&)> callback) {
  impl_->callbacks.evaluation = std::move(callback);
  return *this;
}
Training& Training::on_save(
    std::function<void(const Progress&, const std::string& path)> callback) {
  impl_->callbacks.save = std::move(callback);
  return *this;
}

TrainingResult Training::run(Group& group) {
  return translated([&] {
    TrainingResult result = impl_->run(*group.impl().group);
    impl_->stop_signal = 0;
    return result;
  });
}

void Training::stop() noexcept { impl_->stop_signal = SIGTERM; }

Model Training::model() const {
  return translated([&] {
    const TrainedState& trained = impl_->trained_state("model");
    auto model = std::make_unique<Model::Impl>(trained.name, trained.definition, trained.shape,
                                               /*seed=*/0, trained.threads);
    model->take(trained.arrays, "the trained model");
    if (trained.images) model->prepare_as(*trained.images, trained.normalization);
    return Model(std::move(model));
  });
}

std::string Training::device() const {
  return translated([&] { return name_of(impl_->trained_state("device").device); });
}

}  // namespace engine::api
