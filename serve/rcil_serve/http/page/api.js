// Requests to the server. After a 401 the user is asked for the token, and the request is repeated.

const ask = document.getElementById("ask");
const field = document.getElementById("token");
let token = sessionStorage.getItem("token") ?? "";
let asking = null; // requests that fail together ask once

function askForToken() {
  asking ??= new Promise((resolve) => {
    field.value = "";
    ask.addEventListener("close", () => {
      token = field.value;
      sessionStorage.setItem("token", token);
      asking = null;
      resolve();
    }, { once: true });
    ask.showModal();
  });
  return asking;
}

async function errorMessage(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `the server answered ${response.status}`;
  }
}

export async function send(path, options = {}) {
  for (;;) {
    const sent = token;
    const headers = sent ? { Authorization: `Bearer ${sent}` } : {};
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch {
      throw new Error("the server cannot be reached");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      if (sent === token) await askForToken(); // otherwise another request has asked meanwhile
    } else if (response.status === 429) {
      await new Promise((resolve) => setTimeout(resolve, 1000 * Number(response.headers.get("Retry-After") ?? 1)));
    } else {
      throw new Error(await errorMessage(response));
    }
  }
}

export async function models() {
  return (await send("classes")).json();
}

export async function sample() {
  return (await send("sample.jpg")).blob();
}

// Segments an image: the mask as a bitmap of class rows, the hash of the model, and the latency.
export async function segment(blob, model) {
  const start = performance.now();
  const response = await send(`segment?output=rows&model=${model}`, { method: "POST", body: blob });
  const mask = await response.blob();
  return {
    trip: performance.now() - start,
    latency: Number(response.headers.get("X-Rcil-Latency-Ms")),
    sha256: response.headers.get("X-Rcil-Sha256"),
    bitmap: await createImageBitmap(mask, { colorSpaceConversion: "none" }),
  };
}
