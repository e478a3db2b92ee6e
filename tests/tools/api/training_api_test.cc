// Trainings through the interface: the same steps as the program's, callbacks, folders, mistakes.
#include "engine/training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>

#include "tests/support/expect_contains.h"
#include "tests/support/layers_toml.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/api/expect_error.h"
#include "tests/tools/api/sum_rows.h"

namespace {

using namespace engine::api;
using api_test::rows;

std::chrono::milliseconds time_limit() { return test_support::deadline(std::chrono::seconds(30)); }

Training small(const std::string& folder = "") {
  Training training;
  training.use(rows(1, 200), rows(2, 50));
  training.set("model", "mlp").set("batch-size", 20).set("lr", 0.1).set("threads", 1);
  training.set("epochs", 2).set("log-every", 5).set("seed", 3);
  if (!folder.empty()) training.set("save-dir", folder);
  return training;
}

void alone(const std::function<void(Group&)>& body) { run_threads(1, body, time_limit()); }

TEST(ApiTraining, LearnsFromArraysOnTwoRanks) {
  std::mutex mutex;
  std::vector<std::vector<Tensor>> models(2);
  std::vector<TrainingResult> results(2);
  run_threads(
      2,
      [&](Group& group) {
        Training training = small();
        const TrainingResult result = training.run(group);
        const std::lock_guard lock(mutex);
        models[static_cast<std::size_t>(group.rank())] = training.model().tensors();
        results[static_cast<std::size_t>(group.rank())] = result;
      },
      time_limit());
  ASSERT_EQ(models[0].size(), 6U);
  for (std::size_t i = 0; i < models[0].size(); ++i)
    EXPECT_EQ(models[0][i].values, models[1][i].values) << models[0][i].name;
  for (const TrainingResult& result : results) {
    EXPECT_EQ(result.progress.step, 20);
    EXPECT_EQ(result.progress.samples, 400);
    EXPECT_FALSE(result.stopped);
    ASSERT_TRUE(result.evaluation.has_value());
    EXPECT_EQ(result.evaluation->samples, 50);
    EXPECT_GE(result.evaluation->accuracy, 0.9);
    EXPECT_NE(result.description.find("2 ranks"), std::string::npos) << result.description;
    EXPECT_EQ(result.folder, "");
  }
}

// What the program makes of the same options, bit by bit.
TEST(ApiTraining, EqualsTheProgram) {
  const test_support::TemporaryDirectory folder;
  const test_support::CommandResult program = test_support::engine(
      {"train", "--model", "mlp", "--dataset", "synthetic", "--synthetic-shape", "5x4x3",
       "--synthetic-size", "200", "--steps", "8", "--threads", "1", "--spawn", "2", "--seed", "5",
       "--save-dir", folder / "program"});
  ASSERT_EQ(program.exit_code, 0) << program.err;
  run_threads(
      2,
      [&](Group& group) {
        Training training;
        training.set("model", "mlp").set("dataset", "synthetic").set("synthetic-shape", "5x4x3");
        training.set("synthetic-size", 200).set("steps", 8);
        training.set("threads", 1).set("seed", 5).set("save-dir", folder / "library");
        EXPECT_EQ(training.run(group).folder, folder / "library");
      },
      time_limit());
  const test_support::CommandResult same =
      test_support::engine({"verify", folder / "program", folder / "library"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

TEST(ApiTraining, CallbacksSeeStepsReportsEvaluationsAndSaves) {
  const test_support::TemporaryDirectory folder;
  alone([&](Group& group) {
    int steps = 0, reports = 0, evaluations = 0;
    std::vector<std::string> saved;
    Training training = small(folder / "run");
    training.on_step([&](const Progress& p) { EXPECT_EQ(p.step, ++steps); })
        .on_report([&](const StepReport& r) {
          ++reports;
          EXPECT_TRUE(std::isfinite(r.loss));
          EXPECT_EQ(r.learning_rate, 0.1);
        })
        .on_evaluation([&](const Evaluation& e) {
          ++evaluations;
          EXPECT_EQ(e.weights, "model");
        })
        .on_save([&](const Progress&, const std::string& path) { saved.push_back(path); });
    training.run(group);
    EXPECT_EQ(steps, 20);
    EXPECT_EQ(reports, 4);
    EXPECT_EQ(evaluations, 2);
    ASSERT_FALSE(saved.empty());
    EXPECT_TRUE(std::filesystem::exists(saved.back())) << saved.back();
  });
  EXPECT_TRUE(std::filesystem::exists(folder / "run/run.json"));
  EXPECT_NE(test_support::read_text(folder / "run/metrics.jsonl").find("\"eval\""),
            std::string::npos);
}

TEST(ApiTraining, StopsInOrderAndGoesOnBitByBit) {
  const test_support::TemporaryDirectory folder;
  std::vector<Tensor> whole, parts;
  alone([&](Group& group) {
    Training training = small(folder / "whole");
    training.run(group);
    whole = training.model().tensors();
  });
  alone([&](Group& group) {
    Training training = small(folder / "parts");
    training.on_step([&](const Progress& p) {
      if (p.step == 7) training.stop();
    });
    const TrainingResult result = training.run(group);
    EXPECT_TRUE(result.stopped);
    EXPECT_GE(result.progress.step, 7);
    EXPECT_LT(result.progress.step, 20);
  });
  alone([&](Group& group) {
    Training training = small(folder / "parts");
    const TrainingResult result = training.set("resume", "auto").run(group);
    EXPECT_EQ(result.progress.step, 20);
    EXPECT_FALSE(result.stopped);
    parts = training.model().tensors();
    EXPECT_EQ(training.run(group).progress.step, 20);  // nothing is left to do
  });
  alone([&](Group& group) {  // all but the data comes from the folder
    Training training;
    training.use(rows(1, 200), rows(2, 50)).set("resume", folder / "parts").set("epochs", 3);
    const TrainingResult result = training.run(group);
    EXPECT_EQ(result.progress.step, 30);
    EXPECT_EQ(result.folder, folder / "parts");
    Training other;
    other.use(rows(7, 200)).set("resume", folder / "parts").set("epochs", 4);
    EXPECT_API_ERROR(other.run(group), ConfigurationError, 78, "other data");
  });
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_EQ(whole[i].values, parts[i].values) << whole[i].name;
  // The folder is one that a model can be read from.
  Model model = Model::build("mlp", {.sample = {1, 1, 2}, .classes = 2});
  model.load(folder / "parts");
  EXPECT_GT(model.predict(std::vector<float>{0.9F, 0.9F})[1],
            model.predict(std::vector<float>{0.9F, 0.9F})[0]);
}

// Dark and bright images of 2x2 pixels.
Samples images(int count) {
  Samples samples{.shape = {2, 2, 1}, .classes = 2};
  for (int i = 0; i < count; ++i) {
    const bool bright = i % 2 == 1;
    for (int p = 0; p < 4; ++p)
      samples.pixels.push_back(static_cast<std::uint8_t>((bright ? 200 : 20) + (i * 7 + p) % 40));
    samples.labels.push_back(bright ? 1 : 0);
  }
  return samples;
}

TEST(ApiTraining, AModelOfImagesTakesBytes) {
  for (const std::string how : {"unit", "standard"})
    alone([&](Group& group) {
      Training training;
      training.use(images(100), images(10)).define_model(test_support::layers_toml(R"(
flatten
dense fc out=classes
)"));
      training.set("epochs", 20).set("batch-size", 10).set("lr", 0.5).set("normalize", how);
      const TrainingResult result = training.set("threads", 1).run(group);
      EXPECT_EQ(result.evaluation->accuracy, 1.0) << how;
      Model model = training.model();
      const std::vector<float> logits =
          model.predict(std::vector<std::uint8_t>{10, 10, 10, 10, 240, 240, 240, 240});
      EXPECT_GT(logits[0], logits[1]) << how;
      EXPECT_GT(logits[3], logits[2]) << how;
      if (how == "unit") {
        const float dark = 10.0F / 255;
        const std::vector<float> prepared{dark, dark, dark, dark};
        EXPECT_NEAR(model.predict(prepared)[0], logits[0], 1e-5);
      }
    });
}

TEST(ApiTraining, RanksWithOtherOptionsOrDataAreTold) {
  EXPECT_API_ERROR(run_threads(
                       2,
                       [](Group& group) {
                         Training training = small();
                         training.set("lr", group.rank() == 0 ? 0.1 : 0.2).run(group);
                       },
                       time_limit()),
                   MismatchError, 76, "--lr: rank 0");
  EXPECT_API_ERROR(run_threads(
                       2,
                       [](Group& group) {
                         Training training = small();
                         training.use(rows(group.rank() == 0 ? 1 : 7, 200)).run(group);
                       },
                       time_limit()),
                   MismatchError, 76, "different data");
}

struct CallbackError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(ApiTraining, ATraceIsWrittenWhereTheOptionSays) {
  const test_support::TemporaryDirectory folder;
  const std::string path = folder / "trace.json";
  run_threads(
      2, [&](Group& group) { small().set("trace", path).run(group); }, time_limit());
  const std::string trace = test_support::read_text(path);
  EXPECT_NE(trace.find("\"traceEvents\""), std::string::npos) << trace.substr(0, 200);
  EXPECT_NE(trace.find("wait for data"), std::string::npos);
}

TEST(ApiTraining, WhatACallbackThrowsPassesThrough) {
  EXPECT_THROW(alone([](Group& group) {
                 Training training = small();
                 training.on_step([](const Progress&) { throw CallbackError("seen enough"); });
                 training.run(group);
               }),
               CallbackError);
}

TEST(ApiTraining, ADivergedTrainingSaysSo) {
  EXPECT_API_ERROR(alone([](Group& group) {
                     Training training = small();
                     training.set("lr", 1e6).run(group);
                   }),
                   NonFiniteError, 79, "not finite");
}

TEST(ApiTraining, NoticesGoWhereTheProgramWants) {
  std::mutex mutex;
  std::vector<std::string> notices;
  set_notice_handler([&](const std::string& text) {
    const std::lock_guard lock(mutex);
    notices.push_back(text);
  });
  alone([](Group& group) {
    Training training = small();
    training.set("batch-size", 500).run(group);
  });
  set_notice_handler({});
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_VALUES(notices[0], "batch 500 samples 200");
}

TEST(ApiTraining, MistakesAreNamed) {
  Training training;
  EXPECT_API_ERROR(training.set("learning-rat", 1), ConfigurationError, 78,
                   "unknown option 'learning-rat'");
  EXPECT_API_ERROR(training.set("world-size", 2), ConfigurationError, 78, "Group::join()");
  EXPECT_API_ERROR(training.set("devices", "cpu:0,cpu:1"), ConfigurationError, 78, "one device");
  for (const char* of_program : {"log-file", "quiet", "log-format", "prometheus"})
    EXPECT_API_ERROR(training.set(of_program, "1"), ConfigurationError, 78,
                     std::string("option ") + of_program + " program engine");
  EXPECT_API_ERROR(training.read_options("/nonexistent.toml"), ConfigurationError, 78,
                   "/nonexistent.toml");
  EXPECT_API_ERROR(training.define_model(""), ConfigurationError, 78, "empty");
  EXPECT_API_ERROR(training.model(), ConfigurationError, 78, "run() first");
  training.set("dataset", "glyphs");
  EXPECT_API_ERROR(training.use(rows(1, 4)), ConfigurationError, 78, "dataset and use()");

  Training other = small();
  EXPECT_API_ERROR(other.set("limit", 5), ConfigurationError, 78, "limit and use()");
  EXPECT_API_ERROR(other.define_model("[[layer]]"), ConfigurationError, 78, "define_model()");
  EXPECT_API_ERROR(other.use({}), DataError, 65, "0x0x0");
  Samples wrong = rows(1, 4);
  wrong.values.pop_back();
  EXPECT_API_ERROR(other.use(wrong), DataError, 65, "7 values 4 labels x 2 = 8");
  wrong = rows(1, 4);
  wrong.labels[2] = 2;
  EXPECT_API_ERROR(other.use(wrong), DataError, 65, "label sample 2 2, 0..1");
  wrong = rows(1, 4);
  wrong.classes = 1;
  EXPECT_API_ERROR(other.use(wrong), DataError, 65, "classes is 1");
  wrong = rows(1, 4);
  wrong.pixels = {1};
  EXPECT_API_ERROR(other.use(wrong), DataError, 65, "both values and pixels");
  EXPECT_API_ERROR(other.use(rows(1, 0)), DataError, 65, "no training samples");
  EXPECT_API_ERROR(other.use(rows(1, 4), images(4)), DataError, 65, "differ");

  alone([](Group& group) {
    EXPECT_API_ERROR(small().set("lr", "fast").run(group), ConfigurationError, 78, "fast");
    EXPECT_API_ERROR(small().set("resume", "auto").run(group), ConfigurationError, 78, "save-dir");
    Training without;
    EXPECT_API_ERROR(without.run(group), ConfigurationError, 78, "no model");
  });
}

TEST(ApiTraining, OptionsComeFromAFileToo) {
  const test_support::TemporaryDirectory folder;
  test_support::write_text(folder / "options.toml", "steps = 3\nlr = 0.5\n");
  alone([&](Group& group) {
    Training training;
    training.use(rows(1, 200)).read_options(folder / "options.toml");
    double rate = 0;
    training.on_report([&](const StepReport& r) { rate = r.learning_rate; });
    training.set("model", "mlp").set("lr", 0.25).set("log-every", 1);
    EXPECT_EQ(training.run(group).progress.step, 3);
    EXPECT_EQ(rate, 0.25);  // what was set stays
  });
}

}  // namespace
