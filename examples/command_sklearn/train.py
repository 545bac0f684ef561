"""Train a scikit-learn classifier on handwritten digits, and print its accuracy as a JSON line."""

import argparse
import json

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["logistic", "svm", "forest"], required=True)
parser.add_argument("--linear", action="store_true", help="of svm: a linear kernel")
parser.add_argument("--examples", type=int, default=200)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

features, digits = load_digits(return_X_y=True)
# The seed draws the examples, so that two models with one seed see the same ones.
split = train_test_split(features / 16, digits, train_size=args.examples, random_state=args.seed, stratify=digits)
train_features, test_features, train_digits, test_digits = split
models = {
    "logistic": LogisticRegression(max_iter=1000),
    "svm": SVC(kernel="linear" if args.linear else "rbf"),
    "forest": RandomForestClassifier(n_estimators=100, random_state=args.seed),
}
model = models[args.model].fit(train_features, train_digits)
print(json.dumps({"accuracy": model.score(test_features, test_digits)}))
