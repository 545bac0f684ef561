// Browsers refuse to start a worker from a file. Where the site is opened from a folder, its search runs in a hidden frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const scope = frame.contentWindow;
      const load = source => new Promise((resolve, reject) => {
        const script = scope.document.createElement("script");
        script.src = source;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${source}`));
        scope.document.body.appendChild(script);
      });
      scope.importScripts = (...sources) => Promise.all(sources.map(load));
      scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      this.send = data => scope.dispatchEvent(new scope.MessageEvent("message", { data }));
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready.then(() => this.send(data));
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
