// Trains a network on arrays, on two ranks that are threads of this process, and lets it predict.
// Usage: train_mlp [DEVICE], e.g. cpu, cuda (a GPU for each rank) or auto, the default.
#include <engine/training.h>

#include <cmath>
#include <iostream>
#include <random>
#include <string>

using namespace engine::api;

// Points in a square, and whether they lie within a circle.
Samples draw_points(std::uint64_t seed, int count) {
  Samples points{.shape = {1, 1, 2}, .classes = 2};
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> place(-1, 1);
  for (int i = 0; i < count; ++i) {
    const float x = place(random), y = place(random);
    points.values.insert(points.values.end(), {x, y});
    points.labels.push_back(std::hypot(x, y) < 0.75F ? 1 : 0);
  }
  return points;
}

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "auto";
  try {
    run_threads(2, [&](Group& group) {
      Training training;
      training.use(draw_points(1, 4000), draw_points(2, 500));
      training.set("model", "mlp").set("epochs", 10).set("batch-size", 64);
      training.set("optimizer", "adamw").set("lr", 1e-3).set("device", device);
      if (group.rank() == 0)
        training.on_evaluation([](const Evaluation& e) {
          std::cout << "epoch " << e.progress.epoch << ": accuracy " << e.accuracy << '\n';
        });
      training.run(group);
      if (group.rank() > 0) return;
      Model model = training.model();
      model.set_device(training.device());
      const std::vector<float> logits = model.predict(std::vector<float>{0.1F, 0.2F});
      std::cout << "(0.1, 0.2) lies " << (logits[1] > logits[0] ? "inside" : "outside") << '\n';
    });
  } catch (const Error& error) {
    std::cerr << "train_mlp: " << error.what() << '\n';
    return error.exit_code();
  }
}
